//! What a command reads, handed over so that it does not depend on us.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::process::Stdio;

use super::super::Command;

/// Longer input goes through a pipe.
const LONGEST: usize = 8 * 1024 * 1024;

/// The input of a command. It is all there before the command starts, unless it is long: should this process be killed,
/// the command reads what it was meant to read, not the beginning of it. Git, for one, leaves rubbish in a repository
/// when its input breaks off.
pub(super) fn of(command: &Command) -> Stdio {
    match command.stdin.as_deref() {
        None => Stdio::null(),
        Some(bytes) if bytes.len() <= LONGEST => {
            whole(bytes).map_or_else(|_no_room| Stdio::piped(), Stdio::from)
        }
        Some(_) => Stdio::piped(),
    }
}

fn whole(bytes: &[u8]) -> io::Result<File> {
    let mut file = nameless()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(target_os = "linux")]
fn nameless() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

#[cfg(not(target_os = "linux"))]
fn nameless() -> io::Result<File> {
    tempfile::tempfile()
}
