//! The line to ralph: a socket of its own where there is one, else the standard streams.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::message::PASSWORD;
use super::sys;

/// Both directions of the line.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) from_ralph: File,
    pub(crate) to_ralph: OwnedFd,
}

impl Line {
    /// Takes over the standard streams.
    pub(crate) fn standard() -> io::Result<Self> {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let line = Self {
            from_ralph: stdin.as_fd().try_clone_to_owned()?.into(),
            to_ralph: stdout.as_fd().try_clone_to_owned()?,
        };
        // The originals would be inherited by keepers; a keeper that lives on would keep the session's streams open.
        sys::silence([stdin.as_fd(), stdout.as_fd()])?;
        Ok(line)
    }

    /// Goes to the socket where ralph waits, with the password that stands at the beginning of the standard input. Where
    /// that socket cannot be reached, the standard streams have to do.
    pub(crate) fn through(door: &str) -> io::Result<Self> {
        let mut standard = Self::standard()?;
        let mut password = [0; PASSWORD];
        standard.from_ralph.read_exact(&mut password)?;
        let entered = UnixStream::connect(door).and_then(|mut stream| {
            stream.write_all(&password)?;
            Ok(Self {
                from_ralph: OwnedFd::from(stream.try_clone()?).into(),
                to_ralph: stream.into(),
            })
        });
        Ok(entered.unwrap_or(standard))
    }
}
