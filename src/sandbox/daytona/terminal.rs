//! Opens sessions with the guest over a terminal: the one stream of bytes into a sandbox that Daytona has.
//!
//! A terminal begins with a shell that echoes and prompts. It is told to become a plain pipe, to print a word that it
//! was not told in one piece, and to give way to the guest. What comes before that word is the shell's.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::time::{interval, timeout};

use super::DaytonaError;
use super::socket::{Ears, Mouth};
use super::toolbox::Toolbox;
use crate::exec::Command;
use crate::sandbox::session::{Session, SessionError, Surroundings};
use crate::sandbox::warm::Opener;

/// How long the shell may take to begin and give way.
const SHELL_PATIENCE: Duration = Duration::from_secs(30);
/// How often a stream shows that it is in use.
const PING: Duration = Duration::from_secs(20);
/// How much waits between the stream and the session.
const BUFFER: usize = 256 * 1024;

/// Opens sessions in one sandbox.
#[derive(Debug)]
pub(super) struct ByTerminal {
    pub(super) toolbox: Toolbox,
    /// The guest's file inside.
    pub(super) guest: PathBuf,
    pub(super) surroundings: Surroundings,
}

#[async_trait]
impl Opener for ByTerminal {
    type Error = DaytonaError;

    async fn open(&self) -> Result<Result<Session, SessionError>, DaytonaError> {
        let id = format!("ralph-{:016x}", fastrand::u64(..));
        let (mut ears, mut mouth) = self.toolbox.open_terminal(&id).await?.split();
        let word = [fastrand::u64(..), fastrand::u64(..)].map(|half| format!("{half:016x}"));
        let guest = Command::new(self.guest.to_string_lossy()).arg("session");
        let line = format!(
            "stty raw -echo && printf %s%s {} {} && exec {guest}\r",
            word[0], word[1]
        );
        let said = mouth.say(line.as_bytes()).await;
        let began = timeout(SHELL_PATIENCE, after(&mut ears, word.concat().as_bytes())).await;
        let first = match (said, began) {
            (Ok(()), Ok(first)) => first?,
            (Err(error), _) => return Ok(Err(error.into())),
            (Ok(()), Err(_)) => {
                let after = SHELL_PATIENCE;
                return Ok(Err(SessionError::Silent { after }));
            }
        };
        let (ours, theirs) = duplex(BUFFER);
        let (from_session, to_session) = split(theirs);
        tokio::spawn(hear(ears, first, to_session));
        tokio::spawn(speak(mouth, from_session, self.toolbox.clone(), id));
        let (from_guest, to_guest) = split(ours);
        Ok(Session::open(from_guest, to_guest, self.surroundings.clone()).await)
    }
}

/// What comes after a word.
async fn after(ears: &mut Ears, word: &[u8]) -> Result<Vec<u8>, DaytonaError> {
    let mut heard = Vec::new();
    while let Some(bytes) = ears.hear().await? {
        heard.extend_from_slice(&bytes);
        if let Some(at) = heard.windows(word.len()).position(|window| window == word) {
            return Ok(heard.split_off(at + word.len()));
        }
    }
    Ok(Vec::new())
}

/// Hands what comes from the terminal to the session, until either ends.
async fn hear(mut ears: Ears, first: Vec<u8>, mut to_session: WriteHalf<DuplexStream>) {
    let mut next = Ok(Some(first));
    while let Ok(Some(bytes)) = next {
        if to_session.write_all(&bytes).await.is_err() {
            return;
        }
        next = ears.hear().await;
    }
    let _ = to_session.shutdown().await;
}

/// Hands what the session says to the terminal. When the session ends, so does the terminal, which would go on else.
async fn speak(mut mouth: Mouth, mut from_session: ReadHalf<DuplexStream>, toolbox: Toolbox, id: String) {
    let (mut buffer, mut alarm) = (vec![0; BUFFER], interval(PING));
    loop {
        let said = tokio::select! {
            read = from_session.read(&mut buffer) => match read {
                Ok(length @ 1..) => mouth.say(&buffer[..length]).await,
                Ok(0) | Err(_) => break,
            },
            _ = alarm.tick() => mouth.ping().await,
        };
        if said.is_err() {
            break;
        }
    }
    // Nobody is left to tell. What is not ended now is ended with the sandbox's processes.
    let _ = toolbox.end_terminal(&id).await;
}
