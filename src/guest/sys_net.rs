//! Network system calls that the standard library does not offer: netlink, the socket options of `ip_tables`, raw sockets,
//! passing open files over a Unix socket, and datagrams with their destination.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use super::sys::checked;

unsafe extern "C" {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize;
    fn recvmsg(fd: c_int, message: *mut Message, flags: c_int) -> isize;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
}

/// Netlink protocols.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NetlinkProtocol {
    Route = 0,
    Netfilter = 12,
}

/// The IP version. The values are `AF_INET` and `AF_INET6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpFamily {
    V4 = 2,
    V6 = 10,
}

/// A socket whose options are the `ip_tables` of this network namespace.
#[derive(Debug)]
pub(crate) struct TableSocket {
    socket: File,
    level: c_int,
}

impl TableSocket {
    pub(crate) fn open(family: IpFamily) -> io::Result<Self> {
        const IPPROTO_IPV6: c_int = 41;
        let level = match family {
            IpFamily::V4 => IPPROTO_IP,
            IpFamily::V6 => IPPROTO_IPV6,
        };
        let socket = open_socket(family as c_int, SOCK_DGRAM, 0)?;
        Ok(Self { socket, level })
    }

    /// Reads an option into `bytes`, whose beginning names the table.
    pub(crate) fn get(&self, name: c_int, bytes: &mut [u8]) -> io::Result<()> {
        let mut length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let value = bytes.as_mut_ptr().cast();
        // SAFETY: the length is that of the bytes, which outlive the call.
        checked(unsafe { getsockopt(self.socket.as_raw_fd(), self.level, name, value, &raw mut length) })
    }

    /// Replaces a table. The kernel writes the counters of the `old_count` entries that it had.
    pub(crate) fn replace(
        &self,
        name: c_int,
        header: &[u8],
        entries: &[u8],
        old_count: u32,
    ) -> io::Result<()> {
        // Packets and bytes of each entry.
        let mut counters = vec![[0_u64; 2]; old_count as usize];
        let address = (counters.as_mut_ptr() as usize).to_ne_bytes();
        let bytes = [header, &old_count.to_ne_bytes(), &address, entries].concat();
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let value = bytes.as_ptr().cast();
        // SAFETY: the length is that of the bytes, there are `old_count` counters, and both outlive the call.
        checked(unsafe { setsockopt(self.socket.as_raw_fd(), self.level, name, value, length) })
    }
}

/// Opens a netlink socket: a write sends requests, a read returns replies.
pub(crate) fn netlink_socket(protocol: NetlinkProtocol) -> io::Result<File> {
    const AF_NETLINK: c_int = 16;
    open_socket(AF_NETLINK, SOCK_RAW, protocol as c_int)
}

const SOL_SOCKET: c_int = 1;
pub(crate) const SOCK_STREAM: c_int = 1;
pub(crate) const SOCK_DGRAM: c_int = 2;
pub(crate) const SOCK_RAW: c_int = 3;

pub(crate) fn open_socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<File> {
    const SOCK_CLOEXEC: c_int = 0o2_000_000;
    // SAFETY: takes numbers, does not touch our memory.
    let fd = unsafe { socket(domain, kind | SOCK_CLOEXEC, protocol) };
    checked(fd)?;
    // SAFETY: it was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// The most files that one message can carry (`SCM_MAX_FD`).
const MAX_FILES: usize = 253;

/// Has the layout of `struct msghdr`.
#[repr(C)]
struct Message {
    name: *const c_void,
    name_length: u32,
    pieces: *const Piece,
    piece_count: usize,
    control: *const c_void,
    control_length: usize,
    flags: c_int,
}

/// Has the layout of `struct iovec`.
#[repr(C)]
struct Piece {
    bytes: *const c_void,
    length: usize,
}

/// Has the layout of `struct cmsghdr` followed by its data.
#[repr(C)]
struct Control {
    length: usize,
    level: c_int,
    kind: c_int,
    files: [c_int; MAX_FILES],
}

/// Sends bytes, with open files attached to the first one; returns how many bytes were sent.
pub(crate) fn send_with_files(
    stream: &UnixStream,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    const SCM_RIGHTS: c_int = 1;
    const MSG_NOSIGNAL: c_int = 0x4000;
    if files.len() > MAX_FILES {
        return Err(io::Error::other("too many files for one message"));
    }
    let mut control = Control {
        length: offset_of!(Control, files) + files.len() * size_of::<c_int>(),
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        files: [-1; MAX_FILES],
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
        control: (&raw const control).cast(),
        control_length: control.length,
        flags: 0,
    };
    // SAFETY: each pointer is valid for the length beside it and outlives the call.
    let sent = unsafe { sendmsg(stream.as_raw_fd(), &raw const message, MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

const IPPROTO_IP: c_int = 0;
const IP_PKTINFO: c_int = 8;

/// Has the layout of `struct sockaddr_in`.
#[repr(C)]
#[derive(Default)]
struct SocketAddress {
    family: u16,
    port: [u8; 2],
    address: [u8; 4],
    unused: [u8; 8],
}

/// Has the layout of `struct cmsghdr` followed by `struct in_pktinfo` and padding.
#[repr(C)]
#[derive(Default)]
struct PacketInfo {
    length: usize,
    level: c_int,
    kind: c_int,
    interface: c_int,
    /// The address that a sent packet comes from.
    source: [u8; 4],
    /// The address that a received packet was sent to.
    destination: [u8; 4],
    padding: [u8; 4],
}

/// Lets [`receive_datagram`] see the address that a datagram was sent to.
pub(crate) fn enable_packet_info(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket.as_raw_fd(), IPPROTO_IP, IP_PKTINFO, &1_i32)
}

/// Makes the connection end with a reset when it is closed.
pub(crate) fn reset_on_close(socket: &TcpStream) -> io::Result<()> {
    const SO_LINGER: c_int = 13;
    const ON_WITHOUT_DELAY: [c_int; 2] = [1, 0];
    set_option(socket.as_raw_fd(), SOL_SOCKET, SO_LINGER, &ON_WITHOUT_DELAY)
}

/// Sets the size of the buffers of a listener's connections, each way.
pub(crate) fn limit_socket_buffers(listener: &TcpListener, bytes: c_int) -> io::Result<()> {
    const SO_SNDBUF: c_int = 7;
    const SO_RCVBUF: c_int = 8;
    for option in [SO_SNDBUF, SO_RCVBUF] {
        set_option(listener.as_raw_fd(), SOL_SOCKET, option, &bytes)?;
    }
    Ok(())
}

fn set_option<T>(fd: c_int, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let length = u32::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the length is that of the value, which outlives the call.
    checked(unsafe { setsockopt(fd, level, name, (&raw const *value).cast(), length) })
}

/// Receives a datagram: its length, its sender, and the address that it was sent to.
pub(crate) fn receive_datagram(
    socket: &UdpSocket,
    bytes: &mut [u8],
) -> io::Result<(usize, SocketAddrV4, Ipv4Addr)> {
    let mut sender = SocketAddress::default();
    let mut info = PacketInfo::default();
    let piece = Piece {
        bytes: bytes.as_mut_ptr().cast(),
        length: bytes.len(),
    };
    let mut message = Message {
        name: (&raw mut sender).cast(),
        name_length: u32::try_from(size_of::<SocketAddress>()).map_err(io::Error::other)?,
        pieces: &raw const piece,
        piece_count: 1,
        control: (&raw mut info).cast(),
        control_length: size_of::<PacketInfo>(),
        flags: 0,
    };
    // SAFETY: each pointer was made from a mutable reference, is valid for the length beside it and outlives the call.
    let received = unsafe { recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    if (info.level, info.kind) != (IPPROTO_IP, IP_PKTINFO) {
        return Err(io::Error::other("a datagram came without its destination"));
    }
    let sender = SocketAddrV4::new(sender.address.into(), u16::from_be_bytes(sender.port));
    Ok((received, sender, info.destination.into()))
}

/// Sends a datagram from this address.
pub(crate) fn send_datagram(
    socket: &UdpSocket,
    bytes: &[u8],
    to: SocketAddrV4,
    from: Ipv4Addr,
) -> io::Result<()> {
    let receiver = SocketAddress {
        family: IpFamily::V4 as u16,
        port: to.port().to_be_bytes(),
        address: to.ip().octets(),
        unused: [0; 8],
    };
    let info = PacketInfo {
        length: offset_of!(PacketInfo, padding),
        level: IPPROTO_IP,
        kind: IP_PKTINFO,
        source: from.octets(),
        ..PacketInfo::default()
    };
    let piece = Piece {
        bytes: bytes.as_ptr().cast(),
        length: bytes.len(),
    };
    let message = Message {
        name: (&raw const receiver).cast(),
        name_length: u32::try_from(size_of::<SocketAddress>()).map_err(io::Error::other)?,
        pieces: &raw const piece,
        piece_count: 1,
        control: (&raw const info).cast(),
        control_length: size_of::<PacketInfo>(),
        flags: 0,
    };
    // SAFETY: each pointer is valid for the length beside it and outlives the call.
    let sent = unsafe { sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    usize::try_from(sent)
        .map(drop)
        .map_err(|_| io::Error::last_os_error())
}
