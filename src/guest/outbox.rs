//! What is on its way to ralph.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::message::FromGuest;
use super::sys;

/// Above this no more output is read from commands.
const FULL: usize = 512 * 1024;

/// The stream to ralph and what it has not taken yet.
#[derive(Debug)]
pub(crate) struct Outbox {
    stream: File,
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(crate) fn new(stream: OwnedFd) -> io::Result<Self> {
        sys::never_wait_for(&stream)?;
        Ok(Self {
            stream: stream.into(),
            bytes: Vec::new(),
            sent: 0,
        })
    }

    /// Adds a message.
    pub(crate) fn push(&mut self, id: u32, message: FromGuest<'_>) -> io::Result<()> {
        message.append_to(id, &mut self.bytes).map_err(io::Error::other)
    }

    /// Sends as much as the stream takes at once.
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
        // Not after each write, so that a byte is moved once on average.
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
