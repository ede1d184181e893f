//! Opens warm sessions over a terminal, the only byte stream into a sandbox that Daytona offers.
//!
//! A terminal starts with a shell that echoes and prompts. The shell switches the terminal to raw mode, prints a random
//! marker and executes the guest. The marker is sent in two parts, so that the echo does not contain it. Everything
//! before the marker is output of the shell.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::time::{interval, timeout};

use super::client::DaytonaClient;
use super::error::DaytonaError;
use super::sandbox::DaytonaSandbox;
use super::socket::{self, SocketReader, SocketWriter};
use crate::exec::Command;
use crate::sandbox::session::{SessionError, WarmSession};

/// How long the shell may take to start and execute the guest.
const SHELL_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of keep-alive messages.
const PING: Duration = Duration::from_secs(20);
/// The buffer between the WebSocket and the session, in bytes.
const BUFFER: usize = 256 * 1024;

impl DaytonaSandbox {
    /// Opens a warm session. The inner error means that only the guest does not work.
    pub(super) async fn open_terminal(&self) -> Result<Result<WarmSession, SessionError>, DaytonaError> {
        let id = format!("ralph-{:016x}", fastrand::u64(..));
        let new = json!({ "id": id, "cwd": "/", "cols": 80, "rows": 24 });
        self.toolbox.post("process/pty", new).done().await?;
        let path = format!("process/pty/{id}/connect");
        let (mut reader, mut writer) = socket::open(self.toolbox.get(&path), path).await?;
        let marker = [fastrand::u64(..), fastrand::u64(..)].map(|half| format!("{half:016x}"));
        let guest = Command::new(self.guest.to_string_lossy()).arg("session");
        let line = format!(
            "stty raw -echo && printf %s%s {} {} && exec {guest}\r",
            marker[0], marker[1]
        );
        let sent = writer.send(line.as_bytes()).await;
        let found = timeout(SHELL_TIMEOUT, read_past(&mut reader, marker.concat().as_bytes())).await;
        let first = match (sent, found) {
            (Ok(()), Ok(first)) => first?,
            (Err(error), _) => return Ok(Err(error.into())),
            (Ok(()), Err(_)) => {
                let after = SHELL_TIMEOUT;
                return Ok(Err(SessionError::Silent { after }));
            }
        };
        let (ours, theirs) = duplex(BUFFER);
        let (from_session, to_session) = split(theirs);
        tokio::spawn(forward_to_session(reader, first, to_session));
        tokio::spawn(forward_to_terminal(
            writer,
            from_session,
            self.toolbox.clone(),
            id,
        ));
        let (from_guest, to_guest) = split(ours);
        Ok(WarmSession::open(from_guest, to_guest, self.context.clone()).await)
    }
}

/// Reads up to the marker and returns the bytes after it. The start-up files of the shell may print without end.
async fn read_past(reader: &mut SocketReader, marker: &[u8]) -> Result<Vec<u8>, DaytonaError> {
    let mut read = Vec::new();
    while let Some(bytes) = reader.next().await? {
        read.extend_from_slice(&bytes);
        if let Some(at) = read.windows(marker.len()).position(|window| window == marker) {
            return Ok(read.split_off(at + marker.len()));
        }
        // A part of the marker may be at the end.
        read.drain(..read.len().saturating_sub(marker.len()));
    }
    Ok(Vec::new())
}

/// Forwards bytes from the terminal to the session, until either ends.
async fn forward_to_session(
    mut reader: SocketReader,
    first: Vec<u8>,
    mut to_session: WriteHalf<DuplexStream>,
) {
    let mut next = Ok(Some(first));
    while let Ok(Some(bytes)) = next {
        if to_session.write_all(&bytes).await.is_err() {
            return;
        }
        next = reader.next().await;
    }
    let _ = to_session.shutdown().await;
}

/// Forwards bytes from the session to the terminal. Ends the terminal when the session ends.
async fn forward_to_terminal(
    mut writer: SocketWriter,
    mut from_session: ReadHalf<DuplexStream>,
    toolbox: DaytonaClient,
    id: String,
) {
    let (mut buffer, mut alarm) = (vec![0; BUFFER], interval(PING));
    loop {
        let sent = tokio::select! {
            read = from_session.read(&mut buffer) => match read {
                Ok(length @ 1..) => writer.send(&buffer[..length]).await,
                Ok(0) | Err(_) => break,
            },
            _ = alarm.tick() => writer.ping().await,
        };
        if sent.is_err() {
            break;
        }
    }
    // On an error, the terminal ends together with the processes of the sandbox.
    let _ = toolbox.delete(&format!("process/pty/{id}")).await;
}
