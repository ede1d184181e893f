//! The standard input of commands.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::process::Stdio;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::super::Command;

/// Longer input goes through a pipe.
const LONGEST: usize = 8 * 1024 * 1024;

/// The standard input of a command. Input up to [`LONGEST`] bytes is complete before the command starts: if this process
/// is killed, the command still reads all of it. Git, for one, leaves broken files in a repository when its input is
/// cut off.
pub(super) fn stdin(command: &Command) -> Stdio {
    match command.stdin.as_deref() {
        None => Stdio::null(),
        Some(bytes) if bytes.len() <= LONGEST => {
            file_with(bytes).map_or_else(|_no_space| Stdio::piped(), Stdio::from)
        }
        Some(_) => Stdio::piped(),
    }
}

fn file_with(bytes: &[u8]) -> io::Result<File> {
    let mut file = unnamed_file()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(target_os = "linux")]
fn unnamed_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

#[cfg(not(target_os = "linux"))]
fn unnamed_file() -> io::Result<File> {
    tempfile::tempfile()
}

/// Writes as much input as the command accepts. Closes the stream after the last byte, or if the command closed it.
pub(crate) async fn send_input(stdin: &mut Option<impl AsyncWrite + Unpin>, input: &mut &[u8]) {
    let Some(pipe) = stdin else { return };
    let written = pipe.write(input).await.unwrap_or(input.len());
    *input = &input[written..];
    if input.is_empty() {
        let _ = pipe.shutdown().await;
        *stdin = None;
    }
}
