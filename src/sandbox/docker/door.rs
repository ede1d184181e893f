//! A socket of ralph's own into a container. A session over it does not go through the engine, which would copy every
//! byte several times.
//!
//! The container sees the socket in a directory that it cannot change, and only until the guest came in. Whoever in
//! there finds it does not know the password: the guest alone is told, over the engine's stream.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::guest::message::PASSWORD_LENGTH;

/// The directory, as a container sees it.
pub(super) const DIRECTORY: &str = "/.ralph/door";
/// The socket, as a container sees it.
pub(super) const SOCKET: &str = "/.ralph/door/session";

/// How long somebody who came may take to say the password.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many may be asked for the password at a time.
const AT_ONCE: usize = 64;

/// A door that is open until somebody came in, or it is dropped.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    socket: PathBuf,
    password: [u8; PASSWORD_LENGTH],
}

impl Door {
    /// Opens the door in this directory of the host.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let name = Path::new(SOCKET).file_name().unwrap_or_default();
        let socket = dir.join(name);
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // By way of the directory's number: the address of a socket has room for a hundred bytes only.
        let held = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let listener = UnixListener::bind(short.join(name))?;
        let mut password = [0; PASSWORD_LENGTH];
        getrandom::fill(&mut password).map_err(|error| io::Error::other(error.to_string()))?;
        let door = Self {
            listener,
            socket,
            password,
        };
        // The agent is another user than this one.
        fs::set_permissions(&door.socket, Permissions::from_mode(0o666))?;
        Ok(door)
    }

    /// What the guest must say.
    pub(super) fn password(&self) -> [u8; PASSWORD_LENGTH] {
        self.password
    }

    /// Waits for the one who knows the password, and closes the door behind them.
    pub(super) async fn enter(self) -> io::Result<UnixStream> {
        let mut asked = JoinSet::new();
        loop {
            tokio::select! {
                come = self.listener.accept(), if asked.len() < AT_ONCE => {
                    asked.spawn(ask(come?.0, self.password));
                }
                Some(answered) = asked.join_next() => {
                    if let Ok(Some(stream)) = answered {
                        return Ok(stream);
                    }
                }
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // It is removed with its directory at the latest, and opens to nobody.
        let _ = fs::remove_file(&self.socket);
    }
}

/// Somebody who came, if they know the password.
async fn ask(mut stream: UnixStream, password: [u8; PASSWORD_LENGTH]) -> Option<UnixStream> {
    let mut said = [0; PASSWORD_LENGTH];
    timeout(PATIENCE, stream.read_exact(&mut said)).await.ok()?.ok()?;
    let differing = said.iter().zip(&password).fold(0, |bits, (a, b)| bits | (a ^ b));
    (differing == 0).then_some(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn only_who_knows_the_password_comes_in_and_the_door_closes_behind_them() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than the address of a socket may be.
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let near = format!("/proc/self/fd/{}", {
            let held = rustix::fs::open(&deep, OFlags::PATH, Mode::empty()).unwrap();
            std::os::fd::IntoRawFd::into_raw_fd(held)
        });
        let socket = Path::new(&near).join("session");
        let door = Door::open(&deep).unwrap();
        let password = door.password();

        let entered = tokio::spawn(door.enter());
        let _silent = UnixStream::connect(&socket).await.unwrap();
        let mut wrong = UnixStream::connect(&socket).await.unwrap();
        wrong.write_all(&[0; PASSWORD_LENGTH]).await.unwrap();
        assert_eq!(
            wrong.read(&mut [0]).await.unwrap_or(0),
            0,
            "the wrong one was let in"
        );
        let mut right = UnixStream::connect(&socket).await.unwrap();
        right.write_all(&password).await.unwrap();
        right.write_all(b"hello").await.unwrap();

        let mut heard = [0; 5];
        let mut entered = entered.await.unwrap().unwrap();
        entered.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        assert!(!socket.exists());
    }
}
