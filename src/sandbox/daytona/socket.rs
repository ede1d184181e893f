//! A WebSocket of the toolbox, opened with the HTTP client of the other calls.

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
use super::client::{CallRetry, DaytonaCall};

/// The longest message that is sent. The toolbox accepts up to 64 KiB.
const MAX_MESSAGE: usize = 32 * 1024;

/// An open WebSocket.
#[derive(Debug)]
pub(super) struct DaytonaSocket {
    stream: WebSocketStream<Upgraded>,
    call: String,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct SocketReader {
    stream: SplitStream<WebSocketStream<Upgraded>>,
    call: String,
}

/// The sending half.
#[derive(Debug)]
pub(super) struct SocketWriter {
    sink: SplitSink<WebSocketStream<Upgraded>, Message>,
}

impl DaytonaSocket {
    /// Upgrades a call to a WebSocket. `name` is for errors.
    pub(super) async fn open(call: DaytonaCall, name: String) -> Result<Self, DaytonaError> {
        let key = generate_key();
        let call = call.with(|request| {
            request
                .header(CONNECTION, "Upgrade")
                .header(UPGRADE, "websocket")
                .header(SEC_WEBSOCKET_VERSION, "13")
                .header(SEC_WEBSOCKET_KEY, &key)
        });
        let response = call.send(CallRetry::Safe).await?;
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
        let is_valid =
            accepted.is_some_and(|accept| accept.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS || !is_valid {
            return Err(DaytonaError::Response {
                call: name,
                source: io::Error::new(io::ErrorKind::InvalidData, "Daytona did not open a WebSocket"),
            });
        }
        let upgraded = response
            .upgrade()
            .await
            .map_err(|source| DaytonaError::Unreachable {
                call: name.clone(),
                source: source.without_url(),
            })?;
        Ok(Self {
            stream: WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await,
            call: name,
        })
    }

    pub(super) fn split(self) -> (SocketReader, SocketWriter) {
        let (sink, stream) = self.stream.split();
        let reader = SocketReader {
            stream,
            call: self.call,
        };
        (reader, SocketWriter { sink })
    }
}

impl SocketReader {
    /// The next bytes; `None` after the toolbox has closed the WebSocket.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, DaytonaError> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes.into())),
                // Status messages of the toolbox, for example that a terminal is connected.
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

impl SocketWriter {
    /// Sends bytes, in one or more messages.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(MAX_MESSAGE) {
            let message = Message::Binary(piece.to_vec().into());
            self.sink.send(message).await.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Keeps the connection alive.
    pub(super) async fn ping(&mut self) -> io::Result<()> {
        let ping = Message::Ping(Vec::new().into());
        self.sink.send(ping).await.map_err(io::Error::other)
    }
}
