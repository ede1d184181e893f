//! The line to the holder of a sandbox's network: orders go there, what is in force and the listeners come back.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::SealError;
use crate::guest::holder_protocol::{HolderRequest, HolderResponse, SOCKET};

/// How long the holder may take until it can be reached, or to do something.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);
/// The most listeners that can be handed over at once.
pub(super) const MOST_FILES: usize = 253;
/// What is handed over is not for the programs that ralph starts.
#[cfg(target_os = "linux")]
const KEPT_BACK: RecvFlags = RecvFlags::CMSG_CLOEXEC;
/// Other systems have no such flag, and no engine that shares their sockets.
#[cfg(not(target_os = "linux"))]
const KEPT_BACK: RecvFlags = RecvFlags::empty();
/// The longest answer.
const LONGEST: usize = 64 * 1024;

/// A line to a holder.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
}

/// What a holder answered: what is in force, and the listeners.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) state: String,
    pub(super) listeners: Vec<OwnedFd>,
}

impl Link {
    /// Connects to the holder that shares this directory, as soon as it is there.
    pub(super) async fn connect(dir: &Path) -> Result<Self, SealError> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match connect(dir).await {
                Ok(stream) => return Ok(Self { stream }),
                Err(source) if Instant::now() >= give_up => return Err(SealError::OutOfReach(source)),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Gives an order and waits for what comes of it.
    pub(super) async fn order(&mut self, order: &HolderRequest) -> Result<Answer, SealError> {
        let exchanged = timeout(PATIENCE, self.exchange(&order.to_string())).await;
        let (text, listeners) = exchanged
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(SealError::Line)?;
        match HolderResponse::parse(&text).map_err(|error| SealError::Line(io::Error::other(error)))? {
            HolderResponse::Done(state) => Ok(Answer { state, listeners }),
            HolderResponse::Failed(reason) => Err(SealError::Failed(reason)),
        }
    }

    /// Returns when the holder is gone. It says nothing unasked.
    pub(super) async fn is_over(&self) {
        let mut byte = [0];
        loop {
            if self.stream.readable().await.is_err() {
                return;
            }
            match self.stream.try_read(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    async fn exchange(&mut self, text: &str) -> io::Result<(String, Vec<OwnedFd>)> {
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        let bytes = [&length.to_le_bytes(), text.as_bytes()].concat();
        self.stream.write_all(&bytes).await?;
        let (mut heard, mut files) = (Vec::new(), Vec::new());
        loop {
            if let Some((length, rest)) = heard.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                if rest.len() >= length.min(LONGEST) {
                    let text = rest.get(..length).ok_or(io::ErrorKind::InvalidData)?;
                    return Ok((String::from_utf8_lossy(text).into_owned(), files));
                }
            }
            if self.hear(&mut heard, &mut files).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Takes in what has come: bytes and open files.
    async fn hear(&self, heard: &mut Vec<u8>, files: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let receive = || {
            let mut chunk = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let pieces = &mut [IoSliceMut::new(&mut chunk)];
            let received = recvmsg(&self.stream, pieces, &mut control, KEPT_BACK)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(handed) = message {
                    files.extend(handed);
                }
            }
            heard.extend_from_slice(&chunk[..received.bytes]);
            Ok(received.bytes)
        };
        self.stream.async_io(Interest::READABLE, receive).await
    }
}

/// By the directory's own file, since a socket's path is short and ours may not be.
async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let dir = File::open(dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_holder_whose_socket_never_appears_is_out_of_reach_and_the_hint_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Link::connect(dir.path()).await.unwrap_err();
        assert!(matches!(refused, SealError::OutOfReach(_)), "{refused:?}");
        assert!(
            refused
                .to_string()
                .contains("cannot be reached from this machine"),
            "{refused}"
        );
        assert!(
            refused
                .hint()
                .is_some_and(|hint| hint.contains("in a virtual one"))
        );
    }
}
