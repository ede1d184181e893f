//! A command that is spoken with while it runs.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::process::Pid;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::group::Group;
use super::mark::Mark;

/// What a command prints, as it prints it. Dropping this ends the command and everything it started.
#[derive(Debug)]
pub struct Printed {
    stdout: ChildStdout,
    // Before the child, which reaps the leader when it is dropped: until then the number of the group is taken.
    _group: Group,
    _child: Child,
}

/// Both streams of a command that was just started.
pub(super) fn streams(mut child: Child, mark: Mark) -> io::Result<(Printed, ChildStdin)> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let leader = id.and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    let group = Group::new(leader, mark);
    let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let printed = Printed {
        stdout,
        _group: group,
        _child: child,
    };
    Ok((printed, stdin))
}

impl AsyncRead for Printed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(context, buffer)
    }
}
