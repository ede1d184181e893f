//! A command whose standard input and output the caller reads and writes while it runs.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::group::ProcessGroup;
use super::mark::ProcessMark;

/// The standard output of a running command. Dropping it ends the command and everything it started.
#[derive(Debug)]
pub struct CommandStdout {
    stdout: ChildStdout,
    // Declared before the child, because dropping the child reaps the leader and frees the id of the group.
    _group: ProcessGroup,
    _child: Child,
}

/// Takes both streams of a command that was just started.
pub(super) fn take_streams(mut child: Child, mark: ProcessMark) -> io::Result<(CommandStdout, ChildStdin)> {
    let group = ProcessGroup::new(&child, mark)?;
    let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let stdout = CommandStdout {
        stdout,
        _group: group,
        _child: child,
    };
    Ok((stdout, stdin))
}

impl AsyncRead for CommandStdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(context, buffer)
    }
}
