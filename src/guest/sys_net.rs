//! What the standard library does not offer of the system's network: netlink, and handing over open files.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;

unsafe extern "C" {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize;
}

/// The parts of the kernel that are spoken to by netlink.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Netlink {
    Route = 0,
    Netfilter = 12,
}

/// Sockets that go around TCP and UDP.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OddSocket {
    /// Whole IP packets.
    Raw,
    /// Whole frames of an interface.
    Packet,
    Sctp,
}

/// Opens a way to a part of the kernel: each write is a request, each read brings answers.
pub(crate) fn netlink(part: Netlink) -> io::Result<File> {
    const AF_NETLINK: c_int = 16;
    open(AF_NETLINK, SOCK_RAW, part as c_int)
}

/// Opens a socket that a program without capabilities should not get.
pub(crate) fn odd_socket(kind: OddSocket) -> io::Result<File> {
    const AF_INET: c_int = 2;
    const AF_PACKET: c_int = 17;
    const SOCK_STREAM: c_int = 1;
    const IPPROTO_ICMP: c_int = 1;
    const IPPROTO_SCTP: c_int = 132;
    match kind {
        OddSocket::Raw => open(AF_INET, SOCK_RAW, IPPROTO_ICMP),
        OddSocket::Packet => open(AF_PACKET, SOCK_RAW, 0),
        OddSocket::Sctp => open(AF_INET, SOCK_STREAM, IPPROTO_SCTP),
    }
}

const SOCK_RAW: c_int = 3;

fn open(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<File> {
    const SOCK_CLOEXEC: c_int = 0o2_000_000;
    // SAFETY: takes numbers, touches no memory of ours.
    let fd = unsafe { socket(domain, kind | SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// The most open files that go with one message.
pub(crate) const MOST_FILES: usize = 253;

/// Laid out as the system's `struct msghdr`.
#[repr(C)]
struct Message {
    name: *const c_void,
    name_length: u32,
    pieces: *const Piece,
    piece_count: usize,
    control: *const Control,
    control_length: usize,
    flags: c_int,
}

/// Laid out as the system's `struct iovec`.
#[repr(C)]
struct Piece {
    bytes: *const c_void,
    length: usize,
}

/// Laid out as the system's `struct cmsghdr` with its data behind it.
#[repr(C)]
struct Control {
    length: usize,
    level: c_int,
    kind: c_int,
    files: [c_int; MOST_FILES],
}

/// Sends bytes, and with the first of them open files; returns how many bytes were taken.
pub(crate) fn send_with_files(
    stream: &UnixStream,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    const SOL_SOCKET: c_int = 1;
    const SCM_RIGHTS: c_int = 1;
    const MSG_NOSIGNAL: c_int = 0x4000;
    if files.len() > MOST_FILES {
        return Err(io::Error::other("too many files for one message"));
    }
    let mut control = Control {
        length: offset_of!(Control, files) + files.len() * size_of::<c_int>(),
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        files: [-1; MOST_FILES],
    };
    for (slot, file) in control.files.iter_mut().zip(files) {
        *slot = file.as_raw_fd();
    }
    let piece = Piece {
        bytes: bytes.as_ptr().cast(),
        length: bytes.len(),
    };
    let message = Message {
        name: ptr::null(),
        name_length: 0,
        pieces: &raw const piece,
        piece_count: 1,
        control: if files.is_empty() { ptr::null() } else { &raw const control },
        control_length: if files.is_empty() { 0 } else { control.length },
        flags: 0,
    };
    // SAFETY: every pointer is to something of the length beside it that outlives the call.
    let sent = unsafe { sendmsg(stream.as_raw_fd(), &raw const message, MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
