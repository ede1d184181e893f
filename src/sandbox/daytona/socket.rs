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

use super::client::DaytonaCall;
use super::error::DaytonaError;

/// The longest message that is sent. The toolbox accepts up to 64 KiB.
const MAX_MESSAGE: usize = 32 * 1024;

/// The receiving half.
pub(super) struct SocketReader {
    stream: SplitStream<WebSocketStream<Upgraded>>,
    call: String,
}

/// The sending half.
pub(super) struct SocketWriter(SplitSink<WebSocketStream<Upgraded>, Message>);

/// Upgrades a call to a WebSocket. `name` is for errors.
pub(super) async fn open(
    call: DaytonaCall,
    name: String,
) -> Result<(SocketReader, SocketWriter), DaytonaError> {
    let key = generate_key();
    let call = call.with(|request| {
        request
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
    });
    let response = call.send().await?;
    let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT);
    let is_valid =
        accepted.is_some_and(|accept| accept.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes());
    if response.status() != StatusCode::SWITCHING_PROTOCOLS || !is_valid {
        return Err(DaytonaError::response(name, "Daytona did not open a WebSocket"));
    }
    let upgraded = response.upgrade().await;
    let upgraded = upgraded.map_err(|error| DaytonaError::unreachable(&name, error))?;
    let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await;
    let (sink, stream) = socket.split();
    Ok((SocketReader { stream, call: name }, SocketWriter(sink)))
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
            self.0.send(message).await.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Keeps the connection alive.
    pub(super) async fn ping(&mut self) -> io::Result<()> {
        let ping = Message::Ping(Vec::new().into());
        self.0.send(ping).await.map_err(io::Error::other)
    }
}
