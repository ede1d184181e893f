//! The connection to a holder: sends requests, and receives the rules in the kernel and listening sockets.

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
use crate::guest::holder_protocol::{HolderRequest, SOCKET, decode_response};

/// How long the holder may take to listen, or to fulfil a request.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_POLL: Duration = Duration::from_millis(2);
/// How many sockets one message can pass on.
pub(super) const MAX_LISTENERS: usize = 253;
/// Programs that ralph starts must not inherit the sockets.
#[cfg(target_os = "linux")]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
/// Other systems have neither this flag nor an engine that shares sockets.
#[cfg(not(target_os = "linux"))]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();
/// The longest reply in bytes.
const MAX_REPLY: usize = 64 * 1024;

/// An open connection to a holder.
#[derive(Debug)]
pub(super) struct HolderConnection {
    stream: UnixStream,
}

/// The reply of a holder: the rules in the kernel, and its listening sockets.
#[derive(Debug)]
pub(super) struct HolderReply {
    pub(super) rules: String,
    pub(super) listeners: Vec<OwnedFd>,
}

impl HolderConnection {
    /// Connects to the holder that shares this directory, once it listens.
    pub(super) async fn open(dir: &Path) -> Result<Self, SealError> {
        let give_up = Instant::now() + TIMEOUT;
        loop {
            match connect(dir).await {
                Ok(stream) => return Ok(Self { stream }),
                Err(source) if Instant::now() >= give_up => return Err(SealError::HolderUnreachable(source)),
                Err(_) => sleep(CONNECT_POLL).await,
            }
        }
    }

    /// Sends a request and waits for the reply.
    pub(super) async fn request(&mut self, request: &HolderRequest) -> Result<HolderReply, SealError> {
        let exchanged = timeout(TIMEOUT, self.exchange(&request.to_string())).await;
        let (text, listeners) = exchanged
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(SealError::Connection)?;
        let response = decode_response(&text).map_err(SealError::Connection)?;
        let rules = response.map_err(SealError::reported)?;
        Ok(HolderReply { rules, listeners })
    }

    /// Returns when the holder has ended. It sends nothing without a request.
    pub(super) async fn closed(&self) {
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
        let (mut received, mut files) = (Vec::new(), Vec::new());
        loop {
            if let Some((length, rest)) = received.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                if rest.len() >= length.min(MAX_REPLY) {
                    let text = rest.get(..length).ok_or(io::ErrorKind::InvalidData)?;
                    return Ok((String::from_utf8_lossy(text).into_owned(), files));
                }
            }
            if self.receive(&mut received, &mut files).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Receives bytes and open files.
    async fn receive(&self, bytes: &mut Vec<u8>, files: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let receive = || {
            let mut chunk = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LISTENERS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let pieces = &mut [IoSliceMut::new(&mut chunk)];
            let received = recvmsg(&self.stream, pieces, &mut control, RECEIVE_FLAGS)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(handed) = message {
                    files.extend(handed);
                }
            }
            bytes.extend_from_slice(&chunk[..received.bytes]);
            Ok(received.bytes)
        };
        self.stream.async_io(Interest::READABLE, receive).await
    }
}

/// Connects through a file descriptor of the directory, because the path of a socket is limited to about 100 bytes.
async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let dir = File::open(dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_holder_without_a_socket_is_unreachable_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let refused = HolderConnection::open(dir.path()).await.unwrap_err();
        assert!(matches!(refused, SealError::HolderUnreachable(_)), "{refused:?}");
        assert!(
            refused
                .to_string()
                .contains("cannot connect to the socket of its holder"),
            "{refused}"
        );
        assert!(refused.hint().is_some_and(|hint| hint.contains("in a VM")));
    }
}
