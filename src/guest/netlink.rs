//! Requests to the kernel and its answers, as netlink writes them.

use std::fs::File;
use std::io::{self, Read, Write};

use super::sys_net::{self, Netlink};

/// Flags of requests.
pub(crate) mod flag {
    pub(crate) const ACK: u16 = 0x4;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const CREATE: u16 = 0x400;
    pub(crate) const APPEND: u16 = 0x800;
    pub(super) const REQUEST: u16 = 0x1;
}

/// The length of what every message begins with.
const HEADER: usize = 16;
/// Kinds of messages that every part of the kernel has.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Attributes that hold others are marked so.
const NESTED: u16 = 0x8000;
const KIND_MASK: u16 = 0x3fff;

/// A message in the making.
#[derive(Debug)]
pub(crate) struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    /// A request that begins with this header of its own.
    pub(crate) fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        Self {
            kind,
            flags: flags | flag::REQUEST,
            body: header.to_vec(),
        }
    }

    /// With an attribute.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.body.extend(attribute(kind, value));
        self
    }

    /// With an attribute that holds others.
    pub(crate) fn with_all(self, kind: u16, values: &[Vec<u8>]) -> Self {
        self.with(kind | NESTED, &values.concat())
    }

    fn append_to(&self, bytes: &mut Vec<u8>, sequence: u32) {
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX);
        bytes.extend(length.to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(&self.body);
    }
}

/// An attribute, padded.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(padded(bytes.len()), 0);
    bytes
}

/// An attribute that holds others.
pub(crate) fn attributes(kind: u16, values: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &values.concat())
}

/// The attributes that follow each other in these bytes, by kind.
pub(crate) fn read_attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
        let kind = u16::from_ne_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(padded(length)..).unwrap_or_default();
        Some((kind & KIND_MASK, value))
    })
}

/// The attribute of this kind among those in these bytes.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    read_attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// A way to one part of the kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    file: File,
    sequence: u32,
}

impl Kernel {
    pub(crate) fn open(part: Netlink) -> io::Result<Self> {
        Ok(Self {
            file: sys_net::netlink(part)?,
            sequence: 0,
        })
    }

    /// Sends requests in one go and waits until each that wants to be acknowledged is. The first error is the last
    /// answer that is waited for: of requests that are not permitted, the kernel answers one.
    pub(crate) fn ask(&mut self, requests: &[Request]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for request in requests {
            self.sequence += 1;
            request.append_to(&mut bytes, self.sequence);
        }
        self.file.write_all(&bytes)?;
        let mut awaited = requests.iter().filter(|one| one.flags & flag::ACK != 0).count();
        while awaited > 0 {
            for answer in self.read()? {
                if let Answer::Error(code) = answer {
                    of_code(code)?;
                    awaited = awaited.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    /// Everything that the kernel lists: each item without the header of its message.
    pub(crate) fn list(&mut self, request: &Request) -> io::Result<Vec<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.sequence += 1;
        request.append_to(&mut bytes, self.sequence);
        self.file.write_all(&bytes)?;
        let mut found = Vec::new();
        loop {
            for answer in self.read()? {
                match answer {
                    Answer::Item(item) => found.push(item),
                    Answer::Error(code) => of_code(code)?,
                    Answer::Done => return Ok(found),
                }
            }
        }
    }

    fn read(&mut self) -> io::Result<Vec<Answer>> {
        let mut buffer = vec![0; 64 * 1024];
        let count = self.file.read(&mut buffer)?;
        let mut rest = &buffer[..count];
        let mut answers = Vec::new();
        while let Some((length, kind)) = header_of(rest) {
            let body = rest.get(HEADER..length).ok_or(io::ErrorKind::InvalidData)?;
            answers.push(match kind {
                ERROR => Answer::Error(int_at(body, 0).ok_or(io::ErrorKind::InvalidData)?),
                DONE => Answer::Done,
                _ => Answer::Item(body.to_vec()),
            });
            rest = rest.get(padded(length)..).unwrap_or_default();
        }
        Ok(answers)
    }
}

enum Answer {
    Item(Vec<u8>),
    /// A request was done, or was not for this reason.
    Error(i32),
    Done,
}

fn header_of(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = usize::try_from(int_at(bytes, 0)?).ok().filter(|length| *length >= HEADER)?;
    Some((length, u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?])))
}

/// The number at this place, in this processor's own order.
pub(crate) fn int_at(bytes: &[u8], at: usize) -> Option<i32> {
    let four = bytes.get(at..at + 4)?;
    Some(i32::from_ne_bytes(four.try_into().ok()?))
}

fn of_code(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(-code)),
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}
