//! Reaches an engine on another host by SSH, whose client forwards the socket of the engine to one of this host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::ChildStdin;
use tokio::time::{Instant, sleep, timeout_at};

use super::{EngineEnvironment, EngineError};
use crate::exec::{Command, CommandStdout, Host};

/// How long the client may take to forward the socket.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A forwarded socket. It is closed when this value is dropped.
pub(super) struct SshTunnel {
    dir: tempfile::TempDir,
    /// Dropping it ends the client.
    _client: (CommandStdout, ChildStdin),
}

impl SshTunnel {
    /// Forwards a socket of `destination`, such as `ssh://me@host`. The client never prompts: its key
    /// and the key of the host must be set up.
    pub(super) async fn open(
        destination: &str,
        socket: &Path,
        environment: &EngineEnvironment,
        host: &Host,
    ) -> Result<Self, EngineError> {
        let dir = tempfile::Builder::new().prefix("ralph-ssh-").tempdir();
        let dir = dir.map_err(EngineError::io("create", "a directory for a socket"))?;
        let mut command = Command::new("ssh")
            .args(["-T", "-S", "none"])
            .args(["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"])
            .args(["-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15"])
            .arg("-E")
            .arg(log_file(dir.path()).to_string_lossy())
            .arg("-L")
            .arg(format!(
                "{}:{}",
                socket_file(dir.path()).display(),
                socket.display()
            ))
            // It reads the pipe, which closes when this process ends, in whatever way.
            .args(["--", destination, "exec cat"]);
        if let Some(agent) = environment.var("SSH_AUTH_SOCK") {
            command = command.env("SSH_AUTH_SOCK", agent);
        }
        let started = host.open_piped(&command).map_err(EngineError::io("start", "ssh"));
        let (mut client, stdin) = started?;
        let give_up = Instant::now() + TIMEOUT;
        let ended = async { while client.read_u8().await.is_ok() {} };
        let forwarded = async {
            while UnixStream::connect(socket_file(dir.path())).await.is_err() {
                sleep(POLL).await;
            }
        };
        let problem = tokio::select! {
            reached = timeout_at(give_up, forwarded) => match reached {
                Ok(()) => None,
                Err(_) => Some(format!("no connection within {} s", TIMEOUT.as_secs())),
            },
            () = ended => Some(last_line(&log_file(dir.path()))),
        };
        match problem {
            None => Ok(Self {
                dir,
                _client: (client, stdin),
            }),
            Some(problem) => Err(EngineError::other(
                format!("cannot reach the container engine at {destination}: {problem}"),
                "check that `ssh HOST` connects without a prompt, and that the server allows to forward Unix sockets",
            )),
        }
    }

    /// The socket on this host.
    pub(super) fn socket(&self) -> PathBuf {
        socket_file(self.dir.path())
    }
}

fn socket_file(dir: &Path) -> PathBuf {
    dir.join("docker.sock")
}

fn log_file(dir: &Path) -> PathBuf {
    dir.join("log")
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("ssh ended without a message").trim().to_owned()
}
