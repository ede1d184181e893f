//! Netlink: requests to the kernel and its replies.

use std::fs::File;
use std::io::{self, Read, Write};

use super::sys_net::{self, NetlinkProtocol};

/// Flags of a netlink request (`NLM_F_*`).
pub(crate) mod flag {
    pub(crate) const ACK: u16 = 0x4;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const CREATE: u16 = 0x400;
    pub(crate) const APPEND: u16 = 0x800;
    pub(super) const REQUEST: u16 = 0x1;
}

/// The length of a message header (`struct nlmsghdr`).
const HEADER: usize = 16;
/// Message types that all netlink protocols share.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// An attribute's kind, without its flags.
const KIND_MASK: u16 = 0x3fff;

/// A message to the kernel.
#[derive(Debug)]
pub(crate) struct NetlinkRequest {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl NetlinkRequest {
    /// A request with the header of its message type.
    pub(crate) fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        Self {
            kind,
            flags: flags | flag::REQUEST,
            body: header.to_vec(),
        }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.body.extend(attribute(kind, value));
        self
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX);
        bytes.extend(length.to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        // No sequence number and no sender: each socket has one request or batch at a time.
        bytes.extend([0; 8]);
        bytes.extend(&self.body);
    }
}

/// Encodes an attribute, padded to four bytes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(padded(bytes.len()), 0);
    bytes
}

/// The attributes in these bytes, with their kinds.
pub(crate) fn read_attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
        let kind = u16::from_ne_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(padded(length)..).unwrap_or_default();
        Some((kind & KIND_MASK, value))
    })
}

/// The first attribute of this kind in these bytes.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    read_attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// A socket for one netlink protocol.
#[derive(Debug)]
pub(crate) struct NetlinkSocket(File);

impl NetlinkSocket {
    pub(crate) fn open(protocol: NetlinkProtocol) -> io::Result<Self> {
        sys_net::netlink_socket(protocol).map(Self)
    }

    /// Sends requests in one write and waits for all acknowledgements that they ask for. Returns at the first error: the
    /// kernel answers only one of several requests that are not permitted.
    pub(crate) fn send(&mut self, requests: &[NetlinkRequest]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for request in requests {
            request.append_to(&mut bytes);
        }
        self.0.write_all(&bytes)?;
        let mut pending = requests.iter().filter(|one| one.flags & flag::ACK != 0).count();
        while pending > 0 {
            for reply in self.read()? {
                if let Reply::Error(code) = reply {
                    check_code(code)?;
                    pending = pending.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    /// Sends a dump request and returns the items, without message headers.
    pub(crate) fn list(&mut self, request: &NetlinkRequest) -> io::Result<Vec<Vec<u8>>> {
        let mut bytes = Vec::new();
        request.append_to(&mut bytes);
        self.0.write_all(&bytes)?;
        let mut found = Vec::new();
        loop {
            for reply in self.read()? {
                match reply {
                    Reply::Item(item) => found.push(item),
                    Reply::Error(code) => check_code(code)?,
                    Reply::Done => return Ok(found),
                }
            }
        }
    }

    fn read(&mut self) -> io::Result<Vec<Reply>> {
        let mut buffer = vec![0; 64 * 1024];
        let count = self.0.read(&mut buffer)?;
        let mut rest = &buffer[..count];
        let mut replies = Vec::new();
        while let Some((length, kind)) = parse_header(rest) {
            let body = rest.get(HEADER..length).ok_or(io::ErrorKind::InvalidData)?;
            replies.push(match kind {
                ERROR => Reply::Error(int_at(body, 0).ok_or(io::ErrorKind::InvalidData)?),
                DONE => Reply::Done,
                _ => Reply::Item(body.to_vec()),
            });
            rest = rest.get(padded(length)..).unwrap_or_default();
        }
        Ok(replies)
    }
}

enum Reply {
    Item(Vec<u8>),
    /// The result of a request: zero, or a negative error number.
    Error(i32),
    Done,
}

fn parse_header(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = usize::try_from(int_at(bytes, 0)?)
        .ok()
        .filter(|length| *length >= HEADER)?;
    Some((length, u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?])))
}

/// The native-endian number at this offset.
pub(crate) fn int_at(bytes: &[u8], offset: usize) -> Option<i32> {
    let four = bytes.get(offset..offset + 4)?;
    Some(i32::from_ne_bytes(four.try_into().ok()?))
}

fn check_code(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(-code)),
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}
