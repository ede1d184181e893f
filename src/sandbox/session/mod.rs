//! The warm session with a sandbox: many commands over one stream of bytes, about a millisecond each.
//!
//! At the other end of the stream is the [guest](crate::guest), which starts, monitors and ends the commands. A provider
//! that can carry bytes into a sandbox and back opens a [`WarmSession`], and its `exec` is one call of the session.
//!
//! The output of a command never appears in another one, and no process in the sandbox can read or write the stream. But
//! the guest runs as the same user as the commands, so a command can kill it. Then all running commands fail with
//! [`SessionError::Lost`], and the provider opens a new session. For this reason evidence is not gathered through it.

mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod router;
mod session_call;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use self::error::SessionError;

use self::router::MessageRouter;
use self::session_call::SessionCall;
use super::SandboxError;
use crate::exec::{Command, Exit, OutputSink};
use crate::guest::VERSION;
use crate::guest::frame::FrameDecoder;
use crate::guest::message::FromGuest;

/// How long a guest may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);

/// How many frames are sent at once.
const MAX_FRAMES: usize = 16;

/// What all commands of a session have in common.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionContext {
    /// The name of the sandbox, for messages.
    pub sandbox: String,
    /// The variables of all commands. They inherit nothing from the guest.
    pub env: BTreeMap<String, String>,
    /// The working directory of commands without a `cwd`. A relative `cwd` is relative to it.
    pub dir: PathBuf,
    /// How long to wait after a command has ended for child processes that keep its streams open.
    pub grace: Duration,
}

/// Shows the names of variables only, because their values may be confidential.
impl fmt::Debug for SessionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionContext")
            .field("sandbox", &self.sandbox)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("dir", &self.dir)
            .field("grace", &self.grace)
            .finish()
    }
}

/// An open session. Dropping it ends the running commands and the guest.
#[derive(Debug)]
pub struct WarmSession {
    context: SessionContext,
    router: Arc<MessageRouter>,
    tasks: [JoinHandle<()>; 2],
}

impl WarmSession {
    /// Waits for the hello of the guest. `from_guest` is its standard output and `to_guest` its standard input.
    pub async fn open(
        mut from_guest: impl AsyncRead + Send + Unpin + 'static,
        to_guest: impl AsyncWrite + Send + Unpin + 'static,
        context: SessionContext,
    ) -> Result<Self, SessionError> {
        let mut decoder = FrameDecoder::default();
        let after = HELLO_TIMEOUT;
        timeout(after, read_hello(&mut from_guest, &mut decoder))
            .await
            .map_err(|_| SessionError::Silent { after })??;
        let (router, outgoing) = MessageRouter::new();
        let router = Arc::new(router);
        let receiving = tokio::spawn(receive(from_guest, decoder, router.clone()));
        let sending = tokio::spawn(send(to_guest, outgoing, router.clone()));
        Ok(Self {
            context,
            router,
            tasks: [receiving, sending],
        })
    }

    /// Runs a command to its end, like [`Sandbox::exec`](super::Sandbox::exec). Dropping the future ends the command.
    pub async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        SessionCall::open(&self.router, &self.context)?
            .run(command, output)
            .await
    }

    /// Ends all processes that were started in this session, and everything they left behind.
    pub async fn end_processes(&self) -> Result<(), SandboxError> {
        SessionCall::open(&self.router, &self.context)?.end_all().await
    }

    /// Whether commands can run. A closed session never opens again.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.router.is_open()
    }
}

impl Drop for WarmSession {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Reads the first frame, which must be the hello of this ralph's guest.
async fn read_hello(
    from_guest: &mut (impl AsyncRead + Unpin),
    decoder: &mut FrameDecoder,
) -> Result<(), SessionError> {
    loop {
        if let Some(frame) = decoder.next()? {
            return match FromGuest::decode(frame)? {
                FromGuest::Hello(VERSION) => Ok(()),
                FromGuest::Hello(theirs) => Err(SessionError::Version {
                    theirs,
                    ours: VERSION,
                }),
                _ => Err(SessionError::protocol("the guest did not send a hello")),
            };
        }
        read_more(from_guest, decoder).await?;
    }
}

/// Delivers messages of the guest until the stream ends.
async fn receive(
    mut from_guest: impl AsyncRead + Unpin,
    mut decoder: FrameDecoder,
    router: Arc<MessageRouter>,
) {
    let mut received = router.deliver(&mut decoder);
    while received.is_ok() {
        received = read_more(&mut from_guest, &mut decoder).await;
        received = received.and_then(|()| router.deliver(&mut decoder));
    }
    if let Err(reason) = received {
        router.close(reason);
    }
}

async fn read_more(
    from_guest: &mut (impl AsyncRead + Unpin),
    decoder: &mut FrameDecoder,
) -> Result<(), SessionError> {
    match from_guest.read_buf(decoder.buffer()).await? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the guest has exited").into()),
        _ => Ok(()),
    }
}

/// Sends frames to the guest until the stream ends. Those that wait already are sent together.
async fn send(
    mut to_guest: impl AsyncWrite + Unpin,
    mut outgoing: UnboundedReceiver<Vec<u8>>,
    router: Arc<MessageRouter>,
) {
    let mut frames = Vec::new();
    while outgoing.recv_many(&mut frames, MAX_FRAMES).await > 0 {
        let bytes = frames.concat();
        frames.clear();
        let sent = async {
            to_guest.write_all(&bytes).await?;
            to_guest.flush().await
        };
        if let Err(error) = sent.await {
            return router.close(error.into());
        }
    }
}
