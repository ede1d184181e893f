//! Copying much at once.

use std::io::{self, Read, Write};

/// How much that is. With the few kilobytes of the standard library, the calls would cost more than the bytes.
const CHUNK: usize = 256 * 1024;

/// Copies everything, and says how much it was.
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
