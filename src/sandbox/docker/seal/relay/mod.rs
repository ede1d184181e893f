//! The connection to the relay in a sealed network, where open files cannot be passed to ralph: connections of the sandbox
//! are frames on the streams of one exec. [`crate::guest::relay_protocol`] defines them.

mod demultiplexer;
mod relayed_stream;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::demultiplexer::{Demultiplexer, DnsQuery};
use super::SealError;
use crate::gateway::{Gateway, ListenerProtocol};
use crate::guest::VERSION;
use crate::guest::frame::FrameDecoder;
use crate::guest::holder_protocol::{HolderRequest, ListenerTransport, decode_response};
use crate::guest::relay_protocol::{Datagram, RelayFrame};

/// How long the relay may take to start, or to fulfil a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many DNS queries may wait. Further ones are dropped, and their clients repeat them.
const MAX_QUERIES: usize = 512;

/// An open connection to a relay. Dropping it ends the relay and its listeners.
#[derive(Debug)]
pub(super) struct RelayConnection {
    demultiplexer: Arc<Demultiplexer>,
    tasks: Vec<JoinHandle<()>>,
}

impl RelayConnection {
    /// Waits for the hello of the relay. `from_relay` is its standard output and `to_relay` its standard input.
    pub(super) async fn open(
        mut from_relay: impl AsyncRead + Send + Unpin + 'static,
        to_relay: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, SealError> {
        let mut decoder = RelayFrame::decoder();
        let hello = timeout(TIMEOUT, read_hello(&mut from_relay, &mut decoder)).await;
        let hello = hello.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        hello.map_err(SealError::Connection)?;
        let demultiplexer = Arc::new(Demultiplexer::default());
        let receiving = tokio::spawn(receive(from_relay, decoder, demultiplexer.clone()));
        let sending = tokio::spawn(send(to_relay, demultiplexer.clone()));
        Ok(Self {
            demultiplexer,
            tasks: vec![receiving, sending],
        })
    }

    /// Lets a gateway serve the connections of these listeners, which the relay does not have yet.
    pub(super) fn serve(
        &mut self,
        gateway: &Arc<Gateway>,
        listeners: Vec<(ListenerTransport, ListenerProtocol)>,
    ) {
        let (queries, received) = mpsc::channel(MAX_QUERIES);
        self.demultiplexer
            .serve(Arc::downgrade(gateway), listeners, queries);
        let answering = answer(received, Arc::downgrade(gateway), self.demultiplexer.clone());
        self.tasks.push(tokio::spawn(answering));
    }

    /// Sends a request to the holder and returns the rules in the kernel.
    pub(super) async fn request(&self, request: &HolderRequest) -> Result<String, SealError> {
        let text = request.to_string();
        let response = timeout(TIMEOUT, self.demultiplexer.request(&text)).await;
        let response = response.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let response = response.map_err(SealError::Connection)?;
        let response = decode_response(&String::from_utf8_lossy(&response)).map_err(SealError::Connection)?;
        response.map_err(SealError::reported)
    }

    /// Returns when the relay has ended.
    pub(super) async fn closed(&self) {
        self.demultiplexer.closed().await;
    }
}

impl Drop for RelayConnection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.demultiplexer.close(&io::ErrorKind::ConnectionAborted.into());
    }
}

/// Reads the first frame, which must be the hello of this ralph's guest.
async fn read_hello(from_relay: &mut (impl AsyncRead + Unpin), decoder: &mut FrameDecoder) -> io::Result<()> {
    loop {
        if let Some(frame) = decoder.next().map_err(io::Error::other)? {
            return match RelayFrame::decode(frame).map_err(io::Error::other)? {
                RelayFrame::Hello(VERSION) => Ok(()),
                RelayFrame::Hello(_) => {
                    Err(io::Error::other("the relay is that of another version of ralph"))
                }
                _ => Err(io::Error::other("the relay did not send a hello")),
            };
        }
        read_more(from_relay, decoder).await?;
    }
}

async fn read_more(from_relay: &mut (impl AsyncRead + Unpin), decoder: &mut FrameDecoder) -> io::Result<()> {
    match from_relay.read_buf(decoder.buffer()).await? {
        0 => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the relay has exited",
        )),
        _ => Ok(()),
    }
}

/// Delivers frames of the relay until the stream ends or a frame breaks a rule.
async fn receive(
    mut from_relay: impl AsyncRead + Unpin,
    mut decoder: FrameDecoder,
    demultiplexer: Arc<Demultiplexer>,
) {
    let mut received = demultiplexer.deliver(&mut decoder);
    while received.is_ok() {
        // Frames may need answers, which a relay that does not read would let pile up.
        demultiplexer.has_room().await;
        received = match read_more(&mut from_relay, &mut decoder).await {
            Ok(()) => demultiplexer.deliver(&mut decoder),
            Err(error) => Err(error),
        };
    }
    if let Err(error) = received {
        tracing::debug!(%error, "the relay of a sealed network ended");
        demultiplexer.close(&error);
    }
}

/// Sends frames to the relay until the stream ends.
async fn send(mut to_relay: impl AsyncWrite + Unpin, demultiplexer: Arc<Demultiplexer>) {
    let mut bytes = Vec::new();
    loop {
        demultiplexer.unsent(&mut bytes).await;
        let sent = async {
            to_relay.write_all(&bytes).await?;
            to_relay.flush().await
        };
        if let Err(error) = sent.await {
            return demultiplexer.close(&error);
        }
    }
}

/// Answers DNS queries. This is a task of its own, because a record of the audit may take long to write.
async fn answer(
    mut queries: mpsc::Receiver<DnsQuery>,
    gateway: Weak<Gateway>,
    demultiplexer: Arc<Demultiplexer>,
) {
    while let Some(query) = queries.recv().await {
        let Some(gateway) = gateway.upgrade() else {
            return;
        };
        let Some(bytes) = gateway.answer_dns(&query.bytes) else {
            continue;
        };
        demultiplexer.send(
            query.listener,
            RelayFrame::Datagram(Datagram {
                client: query.client,
                server: query.server,
                bytes: &bytes,
            }),
        );
    }
}
