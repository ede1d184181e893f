//! Bytes that are being written to a stream without blocking.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use super::sys;

/// A stream and the bytes that it has not accepted yet.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    pub(crate) stream: File,
    /// Append to write more. The first `written` bytes are written already.
    pub(crate) bytes: Vec<u8>,
    written: usize,
}

impl WriteQueue {
    pub(crate) fn new(stream: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(&stream)?;
        Ok(Self {
            stream: stream.into(),
            bytes: Vec::new(),
            written: 0,
        })
    }

    /// Writes as much as the stream accepts without blocking; returns the number of bytes.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        let before = self.written;
        while self.written < self.bytes.len() {
            match self.stream.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let count = self.written - before;
        // Not after each write, so that each byte is moved about once.
        if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        Ok(count)
    }

    /// How many bytes are not written yet.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }
}
