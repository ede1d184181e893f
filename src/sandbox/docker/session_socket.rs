//! A Unix socket through which the guest connects to ralph. A session over it bypasses the engine, which would copy
//! every byte several times.
//!
//! The container sees the socket in a read-only directory until the guest has connected. Other processes inside can
//! connect but do not know the password, which the guest gets through the stream of its exec.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::guest::message::PASSWORD_LENGTH;

/// The directory of the socket inside.
pub(super) const DIRECTORY: &str = "/.ralph/door";
/// The path of the socket inside.
pub(super) const PATH: &str = "/.ralph/door/session";

/// How long a client may take to send the password.
const PASSWORD_TIMEOUT: Duration = Duration::from_secs(5);
/// How many clients may be sending the password at a time.
const MAX_CLIENTS: usize = 64;

/// A listening socket. It is removed when the guest has connected, or when it is dropped.
#[derive(Debug)]
pub(super) struct SessionSocket {
    listener: UnixListener,
    path: PathBuf,
    password: [u8; PASSWORD_LENGTH],
}

impl SessionSocket {
    /// Listens in this directory of the host.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let name = Path::new(PATH).file_name().unwrap_or_default();
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Through the file descriptor of the directory, because the path of a socket is limited to about 100 bytes.
        let held = fs::File::open(dir)?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let listener = UnixListener::bind(short.join(name))?;
        let mut password = [0; PASSWORD_LENGTH];
        getrandom::fill(&mut password).map_err(|error| io::Error::other(error.to_string()))?;
        let socket = Self {
            listener,
            path,
            password,
        };
        // The user of the agent may differ from the user of this process.
        fs::set_permissions(&socket.path, Permissions::from_mode(0o666))?;
        Ok(socket)
    }

    /// What the guest must send first.
    pub(super) fn password(&self) -> [u8; PASSWORD_LENGTH] {
        self.password
    }

    /// Waits for a client that knows the password, and stops listening.
    pub(super) async fn accept(self) -> io::Result<UnixStream> {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                client = self.listener.accept(), if clients.len() < MAX_CLIENTS => {
                    clients.spawn(authenticate(client?.0, self.password));
                }
                Some(client) = clients.join_next() => {
                    if let Ok(Some(stream)) = client {
                        return Ok(stream);
                    }
                }
            }
        }
    }
}

impl Drop for SessionSocket {
    fn drop(&mut self) {
        // If this fails, the file is removed with its directory. Nothing listens at it any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the stream if the client sends the password in time.
async fn authenticate(mut stream: UnixStream, password: [u8; PASSWORD_LENGTH]) -> Option<UnixStream> {
    let mut sent = [0; PASSWORD_LENGTH];
    timeout(PASSWORD_TIMEOUT, stream.read_exact(&mut sent))
        .await
        .ok()?
        .ok()?;
    let differing = sent.iter().zip(&password).fold(0, |bits, (a, b)| bits | (a ^ b));
    (differing == 0).then_some(stream)
}

// Other systems have no `/proc`.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn only_a_client_with_the_password_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let near = format!("/proc/self/fd/{}", {
            let held = fs::File::open(&deep).unwrap();
            std::os::fd::IntoRawFd::into_raw_fd(held)
        });
        let socket = Path::new(&near).join("session");
        let listening = SessionSocket::open(&deep).unwrap();
        let password = listening.password();

        let accepted = tokio::spawn(listening.accept());
        let _silent = UnixStream::connect(&socket).await.unwrap();
        let mut wrong = UnixStream::connect(&socket).await.unwrap();
        wrong.write_all(&[0; PASSWORD_LENGTH]).await.unwrap();
        assert_eq!(
            wrong.read(&mut [0]).await.unwrap_or(0),
            0,
            "the wrong password was accepted"
        );
        let mut right = UnixStream::connect(&socket).await.unwrap();
        right.write_all(&password).await.unwrap();
        right.write_all(b"hello").await.unwrap();

        let mut received = [0; 5];
        let mut accepted = accepted.await.unwrap().unwrap();
        accepted.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"hello");
        assert!(!socket.exists());
    }
}
