//! What the standard library does not offer of the system's network: netlink, options that are tables, and handing over
//! open files.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;

unsafe extern "C" {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
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

/// What speaks of a family of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inet {
    V4,
    V6,
}

/// An option of sockets that is about the network namespace, by which the kernel's older firewall is read and set.
#[derive(Debug)]
pub(crate) struct TableOption {
    socket: File,
    level: c_int,
}

impl TableOption {
    pub(crate) fn of(inet: Inet) -> io::Result<Self> {
        const IPPROTO_IP: c_int = 0;
        const IPPROTO_IPV6: c_int = 41;
        let (domain, level) = match inet {
            Inet::V4 => (AF_INET, IPPROTO_IP),
            Inet::V6 => (AF_INET6, IPPROTO_IPV6),
        };
        let socket = open(domain, SOCK_DGRAM, 0)?;
        Ok(Self { socket, level })
    }

    /// Reads it. The beginning of the bytes says what is wanted; all of them are filled.
    pub(crate) fn get(&self, name: c_int, bytes: &mut [u8]) -> io::Result<()> {
        let mut length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let value = bytes.as_mut_ptr().cast();
        // SAFETY: the bytes are as long as is said, and outlive the call.
        let got = unsafe { getsockopt(self.socket.as_raw_fd(), self.level, name, value, &raw mut length) };
        if got == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Replaces a table by a head and entries, where so many entries are now, whose counts the kernel gives away.
    pub(crate) fn replace(&self, name: c_int, [head, entries]: [&[u8]; 2], now: u32) -> io::Result<()> {
        // Of packets and of bytes.
        let mut counts = vec![[0_u64; 2]; now as usize];
        let address = (counts.as_mut_ptr() as usize).to_ne_bytes();
        let bytes = [head, &now.to_ne_bytes(), &address, entries].concat();
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let value = bytes.as_ptr().cast();
        // SAFETY: the bytes are as long as is said, there is room for as many counts as is said, and both outlive the call.
        let set = unsafe { setsockopt(self.socket.as_raw_fd(), self.level, name, value, length) };
        if set == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// Opens a way to a part of the kernel: each write is a request, each read brings answers.
pub(crate) fn netlink(part: Netlink) -> io::Result<File> {
    const AF_NETLINK: c_int = 16;
    open(AF_NETLINK, SOCK_RAW, part as c_int)
}

/// Opens a socket that a program without capabilities should not get.
pub(crate) fn odd_socket(kind: OddSocket) -> io::Result<File> {
    const AF_PACKET: c_int = 17;
    const SOCK_STREAM: c_int = 1;
    const IPPROTO_SCTP: c_int = 132;
    match kind {
        OddSocket::Raw => open(AF_INET, SOCK_RAW, IPPROTO_ICMP),
        OddSocket::Packet => open(AF_PACKET, SOCK_RAW, 0),
        OddSocket::Sctp => open(AF_INET, SOCK_STREAM, IPPROTO_SCTP),
    }
}

/// Opens a socket for echo requests, which a plain program may have.
pub(crate) fn echo_socket() -> io::Result<UdpSocket> {
    open(AF_INET, SOCK_DGRAM, IPPROTO_ICMP).map(|file| OwnedFd::from(file).into())
}

const AF_INET: c_int = 2;
const AF_INET6: c_int = 10;
const SOCK_DGRAM: c_int = 2;
const SOCK_RAW: c_int = 3;
const IPPROTO_ICMP: c_int = 1;

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
        control: if files.is_empty() {
            ptr::null()
        } else {
            &raw const control
        },
        control_length: if files.is_empty() { 0 } else { control.length },
        flags: 0,
    };
    // SAFETY: every pointer is to something of the length beside it that outlives the call.
    let sent = unsafe { sendmsg(stream.as_raw_fd(), &raw const message, MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
