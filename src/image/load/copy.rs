//! Copies in large chunks.

use std::io::{self, Read, Write};

/// `io::copy` uses a few kilobytes, with which the system calls cost more than the bytes.
const CHUNK: usize = 256 * 1024;

/// Copies to the end, and returns the number of bytes.
pub(super) fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK];
    let mut copied = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(read) => {
                to.write_all(&buffer[..read])?;
                copied += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
