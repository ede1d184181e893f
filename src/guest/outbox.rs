//! Messages that are being sent to ralph.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::message::FromGuest;
use super::sys;

/// Above this many bytes, no more output of commands is read.
const FULL: usize = 512 * 1024;

/// The stream to ralph and the bytes that it has not accepted yet.
#[derive(Debug)]
pub(crate) struct Outbox {
    stream: File,
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(crate) fn new(stream: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(&stream)?;
        Ok(Self {
            stream: stream.into(),
            bytes: Vec::new(),
            sent: 0,
        })
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, id: u32, message: FromGuest<'_>) -> io::Result<()> {
        message.append_to(id, &mut self.bytes).map_err(io::Error::other)
    }

    /// Writes as much as the stream accepts without blocking.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            match self.stream.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Not after each write, so that each byte is moved about once.
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() - self.sent > FULL
    }
}

impl AsFd for Outbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
