//! The connection to ralph: a Unix socket where one can be reached, else standard input and output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::message::PASSWORD_LENGTH;
use super::sys;

/// Both directions of the connection to ralph.
#[derive(Debug)]
pub(crate) struct HostConnection {
    pub(crate) from_ralph: File,
    pub(crate) to_ralph: OwnedFd,
}

impl HostConnection {
    /// Takes over standard input and output. With a socket, reads the password from standard input and shows it there;
    /// standard input and output stay the connection if the socket cannot be reached.
    pub(crate) fn open(socket: Option<&str>) -> io::Result<Self> {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let mut own = Self {
            from_ralph: stdin.as_fd().try_clone_to_owned()?.into(),
            to_ralph: stdout.as_fd().try_clone_to_owned()?,
        };
        // Keepers inherit the originals; a keeper that outlives the session would hold its streams open.
        sys::redirect_to_dev_null([stdin.as_fd(), stdout.as_fd()])?;
        let Some(socket) = socket else {
            return Ok(own);
        };
        let mut password = [0; PASSWORD_LENGTH];
        own.from_ralph.read_exact(&mut password)?;
        let connected = UnixStream::connect(socket).and_then(|mut stream| {
            stream.write_all(&password)?;
            Ok(Self {
                from_ralph: OwnedFd::from(stream.try_clone()?).into(),
                to_ralph: stream.into(),
            })
        });
        Ok(connected.unwrap_or(own))
    }
}
