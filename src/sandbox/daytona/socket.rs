//! A WebSocket of the toolbox, by the same client as every other call.

use std::io;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use reqwest::{StatusCode, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::DaytonaError;
use super::client::{Call, Repeat};

/// Longer messages are cut: the toolbox takes no more than 64 KiB at once.
const LONGEST: usize = 32 * 1024;

/// A stream of messages in both directions.
#[derive(Debug)]
pub(super) struct Socket {
    stream: WebSocketStream<Upgraded>,
    call: String,
}

/// The half that hears.
#[derive(Debug)]
pub(super) struct Ears {
    stream: SplitStream<WebSocketStream<Upgraded>>,
    call: String,
}

/// The half that speaks.
#[derive(Debug)]
pub(super) struct Mouth {
    sink: SplitSink<WebSocketStream<Upgraded>, Message>,
}

impl Socket {
    /// Makes the call a stream.
    pub(super) async fn open(call: Call, named: String) -> Result<Self, DaytonaError> {
        let key = generate_key();
        let call = call.with(|request| {
            request
                .header(CONNECTION, "Upgrade")
                .header(UPGRADE, "websocket")
                .header(SEC_WEBSOCKET_VERSION, "13")
                .header(SEC_WEBSOCKET_KEY, &key)
        });
        let response = call.send(Repeat::Harmless).await?;
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
        let is_ours =
            accepted.is_some_and(|accept| accept.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS || !is_ours {
            return Err(DaytonaError::Answer {
                call: named,
                source: io::Error::new(io::ErrorKind::InvalidData, "it opened no stream"),
            });
        }
        let upgraded = response
            .upgrade()
            .await
            .map_err(|source| DaytonaError::Unreachable {
                call: named.clone(),
                source: source.without_url(),
            })?;
        Ok(Self {
            stream: WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await,
            call: named,
        })
    }

    /// Both halves, to be used at once.
    pub(super) fn split(self) -> (Ears, Mouth) {
        let (sink, stream) = self.stream.split();
        let ears = Ears {
            stream,
            call: self.call,
        };
        (ears, Mouth { sink })
    }
}

impl Ears {
    /// The next bytes; `None` at the end that the toolbox has said is one.
    pub(super) async fn hear(&mut self) -> Result<Option<Vec<u8>>, DaytonaError> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes.into())),
                // What the toolbox has to say itself, such as that a terminal is connected.
                Some(Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) => return Ok(None),
                Some(Err(error)) => return Err(self.broken(error)),
                None => return Err(self.broken(Error::ConnectionClosed)),
            }
        }
    }

    fn broken(&self, error: Error) -> DaytonaError {
        DaytonaError::Stream {
            call: self.call.clone(),
            source: io::Error::other(error),
        }
    }
}

impl Mouth {
    /// Sends bytes, in as many messages as they need.
    pub(super) async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(LONGEST) {
            let message = Message::Binary(piece.to_vec().into());
            self.sink.send(message).await.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Keeps whatever stands between from taking the stream for dead.
    pub(super) async fn ping(&mut self) -> io::Result<()> {
        let ping = Message::Ping(Vec::new().into());
        self.sink.send(ping).await.map_err(io::Error::other)
    }
}
