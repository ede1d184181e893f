//! The warm way into a sandbox: many commands over one stream of bytes, each in about a millisecond.
//!
//! At the other end of the stream is the [guest](crate::guest), which starts, feeds, watches and ends the commands. A
//! provider that can carry bytes in and out of a sandbox opens a [`Session`], and its `exec` is one call. The rules are
//! those of every sandbox: how a command is ended, who is waited for, what is kept of the output.
//!
//! What a command leaves behind is never heard in another one, and nothing in the sandbox can write to the stream or
//! read it. But the guest runs as the same user as the commands: one of them may kill it. Then every command that runs
//! fails with [`SessionError::Lost`](SessionError), and the provider opens a new session. For this reason evidence is not gathered
//! over a session.

mod call;
mod error;
mod exchange;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use self::error::SessionError;

use self::call::Call;
use self::exchange::Exchange;
use super::SandboxError;
use crate::exec::{Command, Exit, OutputSink};
use crate::guest::VERSION;
use crate::guest::frame::FrameDecoder;
use crate::guest::message::FromGuest;

/// How long a guest may take to say hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(20);

/// What every command of a session shares.
#[derive(Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// What to call the sandbox in messages.
    pub sandbox: String,
    /// All variables a command sees besides its own. Nothing of the guest's environment reaches it.
    pub env: BTreeMap<String, String>,
    /// Where commands without a `cwd` start; a relative `cwd` is relative to it.
    pub dir: PathBuf,
    /// How long a command that has ended may be kept waiting by a child that holds its streams.
    pub grace: Duration,
}

/// Names of variables only: their values may be confidential.
impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("sandbox", &self.sandbox)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("dir", &self.dir)
            .field("grace", &self.grace)
            .finish()
    }
}

/// An open stream to a guest. Dropping it ends the commands that run, and the guest.
#[derive(Debug)]
pub struct Session {
    surroundings: Surroundings,
    exchange: Arc<Exchange>,
    tasks: [JoinHandle<()>; 2],
}

impl Session {
    /// Waits for the guest's hello on `from_guest`, its standard output; `to_guest` is its standard input.
    pub async fn open(
        mut from_guest: impl AsyncRead + Send + Unpin + 'static,
        to_guest: impl AsyncWrite + Send + Unpin + 'static,
        surroundings: Surroundings,
    ) -> Result<Self, SessionError> {
        let mut decoder = FrameDecoder::default();
        let after = HELLO_PATIENCE;
        timeout(after, hello(&mut from_guest, &mut decoder))
            .await
            .map_err(|_| SessionError::Silent { after })??;
        let (exchange, outgoing) = Exchange::new();
        let exchange = Arc::new(exchange);
        // Neither task keeps the exchange alive: that is for the session alone.
        let listening = tokio::spawn(listen(from_guest, decoder, Arc::downgrade(&exchange)));
        let speaking = tokio::spawn(speak(to_guest, outgoing, Arc::downgrade(&exchange)));
        Ok(Self {
            surroundings,
            exchange,
            tasks: [listening, speaking],
        })
    }

    /// Runs a command to its end, as [`Sandbox::exec`](super::Sandbox::exec) has it. Dropping the future ends the command.
    pub async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        Call::open(&self.exchange, &self.surroundings)?
            .run(command, output)
            .await
    }

    /// Ends every process that was started over this session and everything those left behind.
    pub async fn end_processes(&self) -> Result<(), SandboxError> {
        Call::open(&self.exchange, &self.surroundings)?.end_all().await
    }

    /// Whether commands can be run. Once they cannot, they never can again: open another session.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.exchange.is_open()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Takes the first frame, which must be the hello of our own guest.
async fn hello(
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
                _ => Err(SessionError::nonsense("the guest did not say hello")),
            };
        }
        more(from_guest, decoder).await?;
    }
}

/// Hands what the guest says to the commands, until the stream or the session ends.
async fn listen(mut from_guest: impl AsyncRead + Unpin, mut decoder: FrameDecoder, exchange: Weak<Exchange>) {
    let why = loop {
        let Some(exchange) = exchange.upgrade() else {
            return;
        };
        if let Err(error) = exchange.deliver(&mut decoder) {
            break error;
        }
        drop(exchange);
        if let Err(error) = more(&mut from_guest, &mut decoder).await {
            break error;
        }
    };
    exchange.upgrade().inspect(|exchange| exchange.close(why));
}

async fn more(
    from_guest: &mut (impl AsyncRead + Unpin),
    decoder: &mut FrameDecoder,
) -> Result<(), SessionError> {
    match from_guest.read_buf(decoder.buffer()).await? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the guest has ended").into()),
        _ => Ok(()),
    }
}

/// Sends what the commands have to say, until the stream or the session ends.
async fn speak(
    mut to_guest: impl AsyncWrite + Unpin,
    mut outgoing: UnboundedReceiver<Vec<u8>>,
    exchange: Weak<Exchange>,
) {
    while let Some(bytes) = outgoing.recv().await {
        let sent = async {
            to_guest.write_all(&bytes).await?;
            to_guest.flush().await
        };
        if let Err(error) = sent.await {
            exchange
                .upgrade()
                .inspect(|exchange| exchange.close(error.into()));
            return;
        }
    }
}
