//! Reaches an engine on another host by SSH, whose client forwards the socket of the engine to one of this host.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::ChildStdin;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::{EngineEnvironment, EngineError};
use crate::exec::{Command, CommandStdout, Host};

/// How long the client may take to forward the socket.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// How long to wait before a client is started again that ended.
const REOPEN_DELAY: Duration = Duration::from_secs(1);

/// A forwarded socket. It is closed when this value is dropped, and opened again when the client ends.
pub(super) struct SshTunnel {
    dir: Arc<tempfile::TempDir>,
    /// Runs the client. Aborting it ends the client.
    task: JoinHandle<()>,
}

/// A running client. Dropping it ends the client.
struct SshClient {
    stdout: CommandStdout,
    /// The server closes the connection when this is closed.
    _stdin: ChildStdin,
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
        let forward = Forward {
            command: command(destination, socket, environment, dir.path()),
            destination: destination.to_owned(),
            host: host.clone(),
            dir: Arc::new(dir),
        };
        let client = forward.start().await?;
        Ok(Self {
            dir: forward.dir.clone(),
            task: tokio::spawn(forward.keep_open(client)),
        })
    }

    /// The socket on this host.
    pub(super) fn socket(&self) -> PathBuf {
        socket_file(self.dir.path())
    }
}

impl Drop for SshTunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a client is started from.
struct Forward {
    command: Command,
    destination: String,
    host: Host,
    dir: Arc<tempfile::TempDir>,
}

impl Forward {
    /// Starts a client, and waits until it has forwarded the socket.
    async fn start(&self) -> Result<SshClient, EngineError> {
        let started = self.host.open_piped(&self.command);
        let (mut stdout, stdin) = started.map_err(EngineError::io("start", "ssh"))?;
        let give_up = Instant::now() + TIMEOUT;
        let forwarded = async {
            while UnixStream::connect(socket_file(self.dir.path())).await.is_err() {
                sleep(POLL).await;
            }
        };
        let problem = tokio::select! {
            reached = timeout_at(give_up, forwarded) => match reached {
                Ok(()) => None,
                Err(_) => Some(format!("no connection within {} s", TIMEOUT.as_secs())),
            },
            () = end_of(&mut stdout) => Some(last_line(&log_file(self.dir.path()))),
        };
        match problem {
            None => Ok(SshClient {
                stdout,
                _stdin: stdin,
            }),
            Some(problem) => Err(EngineError::other(
                format!(
                    "cannot reach the container engine at {}: {problem}",
                    self.destination
                ),
                "check that `ssh HOST` connects without a prompt, and that the server allows to forward Unix sockets",
            )),
        }
    }

    /// Starts another client whenever one ends. What the old one carried is lost; requests fail until the next one runs.
    async fn keep_open(self, mut client: SshClient) {
        loop {
            end_of(&mut client.stdout).await;
            let reason = last_line(&log_file(self.dir.path()));
            tracing::warn!(
                engine = self.destination,
                reason,
                "the SSH connection ended, opening it again"
            );
            client = loop {
                sleep(REOPEN_DELAY).await;
                match self.start().await {
                    Ok(client) => break client,
                    Err(error) => tracing::debug!(%error, "cannot open the SSH connection again"),
                }
            };
        }
    }
}

/// Returns when the client has ended.
async fn end_of(stdout: &mut CommandStdout) {
    while stdout.read_u8().await.is_ok() {}
}

/// The client, which forwards the socket into this directory.
fn command(destination: &str, socket: &Path, environment: &EngineEnvironment, dir: &Path) -> Command {
    let command = Command::new("ssh")
        .args(["-T", "-S", "none"])
        .args(["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"])
        .args(["-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15"])
        // The socket of a client before it.
        .args(["-o", "StreamLocalBindUnlink=yes"])
        .arg("-E")
        .arg(log_file(dir).to_string_lossy())
        .arg("-L")
        .arg(format!("{}:{}", socket_file(dir).display(), socket.display()))
        // It reads the pipe, which closes when this process ends, in whatever way.
        .args(["--", destination, "exec cat"]);
    match environment.var("SSH_AUTH_SOCK") {
        Some(agent) => command.env("SSH_AUTH_SOCK", agent),
        None => command,
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
