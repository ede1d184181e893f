//! Separates the connections of a sandbox that share the streams of one relay.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::relayed_stream::RelayedStream;
use crate::gateway::{Gateway, ListenerProtocol};
use crate::guest::frame::FrameDecoder;
use crate::guest::holder_protocol::ListenerTransport;
use crate::guest::relay_protocol::{
    Datagram, FullWindows, MAX_CONNECTIONS, MAX_UNSENT, PIECE, ReceiveWindow, RelayFrame, SendCredit,
};

/// Separates the connections of one relay. Its memory is bounded, whatever the relay sends: data by the credit of each
/// connection, and what it would have to answer by [`Demultiplexer::has_room`].
#[derive(Debug)]
pub(super) struct Demultiplexer {
    state: Mutex<DemultiplexerState>,
    /// Wakes the task that sends.
    has_unsent: Notify,
    /// Wakes the task that receives.
    has_sent: Notify,
    is_closed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct DemultiplexerState {
    connections: HashMap<u32, ConnectionState>,
    /// The number of the newest connection.
    last_id: u32,
    full_windows: FullWindows,
    /// Frames that are to be sent.
    unsent: Vec<u8>,
    /// Whether connections wait until less is unsent.
    writers_wait: bool,
    served: Option<ServedListeners>,
    /// Waits for the response to a request.
    response: Option<oneshot::Sender<Vec<u8>>>,
    is_closed: bool,
}

struct ServedListeners {
    /// Weak, because the tasks of the gateway own streams, which own the demultiplexer.
    gateway: Weak<Gateway>,
    listeners: Vec<(ListenerTransport, ListenerProtocol)>,
    queries: mpsc::Sender<DnsQuery>,
}

impl std::fmt::Debug for ServedListeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServedListeners")
            .field("listeners", &self.listeners)
            .finish_non_exhaustive()
    }
}

/// A DNS query in a datagram.
#[derive(Debug)]
pub(super) struct DnsQuery {
    /// The position of the listener.
    pub(super) listener: u32,
    pub(super) client: SocketAddrV4,
    pub(super) server: Ipv4Addr,
    pub(super) bytes: Vec<u8>,
}

/// One connection that a stream exists for.
#[derive(Debug, Default)]
struct ConnectionState {
    received: BytesMut,
    window: ReceiveWindow,
    credit: SendCredit,
    reads: StreamDirection,
    writes: StreamDirection,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The relay reported that it is broken.
    was_reset: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StreamDirection {
    #[default]
    Open,
    Ended,
}

impl ConnectionState {
    fn wake(&mut self) {
        let wakers = [self.reader.take(), self.writer.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Default for Demultiplexer {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            has_unsent: Notify::new(),
            has_sent: Notify::new(),
            is_closed: watch::Sender::new(false),
        }
    }
}

impl Demultiplexer {
    /// Lets the gateway serve the connections of these listeners. Queries are DNS datagrams.
    pub(super) fn serve(
        &self,
        gateway: Weak<Gateway>,
        listeners: Vec<(ListenerTransport, ListenerProtocol)>,
        queries: mpsc::Sender<DnsQuery>,
    ) {
        self.lock().served = Some(ServedListeners {
            gateway,
            listeners,
            queries,
        });
    }

    /// Sends a request and returns the response.
    pub(super) async fn request(&self, text: &str) -> io::Result<Vec<u8>> {
        let (response, received) = oneshot::channel();
        {
            let mut state = self.lock();
            if state.is_closed {
                return Err(io::ErrorKind::NotConnected.into());
            }
            state.response = Some(response);
            state.send(0, RelayFrame::Control(text.as_bytes()))?;
        }
        self.has_unsent.notify_one();
        received
            .await
            .map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }

    /// Sends a frame, unless too much is unsent. A datagram that is not sent is asked for again.
    pub(super) fn send(&self, id: u32, frame: RelayFrame<'_>) {
        let mut state = self.lock();
        if state.unsent.len() <= MAX_UNSENT && state.send(id, frame).is_ok() {
            self.has_unsent.notify_one();
        }
    }

    /// Replaces `bytes` with the frames to send next, once there are any. The two buffers change places, so that neither is
    /// allocated again.
    pub(super) async fn unsent(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        loop {
            {
                let mut state = self.lock();
                if std::mem::take(&mut state.writers_wait) {
                    let writers = state.connections.values_mut();
                    writers
                        .filter_map(|connection| connection.writer.take())
                        .for_each(Waker::wake);
                }
                std::mem::swap(&mut state.unsent, bytes);
            }
            if !bytes.is_empty() {
                return self.has_sent.notify_one();
            }
            self.has_unsent.notified().await;
        }
    }

    /// Returns when not too much is unsent.
    pub(super) async fn has_room(&self) {
        while self.lock().unsent.len() > MAX_UNSENT {
            self.has_sent.notified().await;
        }
    }

    /// Returns when the relay has ended.
    pub(super) async fn closed(&self) {
        let mut closed = self.is_closed.subscribe();
        // The sender exists as long as this demultiplexer.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Breaks all connections.
    pub(super) fn close(&self, reason: &io::Error) {
        let mut state = self.lock();
        if !state.is_closed {
            tracing::debug!(%reason, "closed the relay of a sealed network");
        }
        state.is_closed = true;
        state.response = None;
        state.served = None;
        state.unsent = Vec::new();
        state.connections.values_mut().for_each(ConnectionState::wake);
        self.is_closed.send_replace(true);
    }

    /// Delivers all frames in the decoder. Fails if one breaks a rule of the protocol.
    pub(super) fn deliver(self: &Arc<Self>, decoder: &mut FrameDecoder) -> io::Result<()> {
        while let Some(frame) = decoder.next().map_err(io::Error::other)? {
            let id = frame.id;
            match RelayFrame::decode(frame).map_err(io::Error::other)? {
                RelayFrame::Opened {
                    listener,
                    destination,
                } => self.open(id, listener, destination)?,
                frame => self.lock().deliver(id, frame)?,
            }
        }
        // Credit and resets that these frames caused.
        self.has_unsent.notify_one();
        Ok(())
    }

    fn open(self: &Arc<Self>, id: u32, listener: u16, destination: SocketAddrV4) -> io::Result<()> {
        let opened = self.lock().open(id, listener)?;
        let Some((gateway, protocol)) = opened else {
            return Ok(());
        };
        let stream = RelayedStream::new(self.clone(), id);
        gateway.serve(protocol, stream, destination.into());
        Ok(())
    }

    pub(super) fn poll_read(
        &self,
        id: u32,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(connection) = state.connections.get_mut(&id).filter(|_| !state.is_closed) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        if connection.was_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let count = connection.received.len().min(buffer.remaining());
        if count > 0 {
            buffer.put_slice(&connection.received[..count]);
            connection.received.advance(count);
            if connection.received.is_empty() {
                connection.received = BytesMut::new();
            }
            let credit = connection.window.deliver(count, &mut state.full_windows);
            if let Some(credit) = credit.filter(|_| connection.reads == StreamDirection::Open) {
                state.send(id, RelayFrame::Credit(credit))?;
                self.has_unsent.notify_one();
            }
        } else if connection.reads == StreamDirection::Open && buffer.remaining() > 0 {
            connection.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write(
        &self,
        id: u32,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(connection) = state.connections.get_mut(&id).filter(|_| !state.is_closed) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        if connection.was_reset || connection.writes == StreamDirection::Ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(connection.credit.left()).min(PIECE);
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if count == 0 || state.unsent.len() > MAX_UNSENT {
            connection.writer = Some(context.waker().clone());
            state.writers_wait |= count > 0;
            return Poll::Pending;
        }
        connection.credit.spend(count);
        state.send(id, RelayFrame::Data(&bytes[..count]))?;
        self.has_unsent.notify_one();
        Poll::Ready(Ok(count))
    }

    /// Ends the data to the client.
    pub(super) fn shut_down(&self, id: u32) -> io::Result<()> {
        let mut state = self.lock();
        let Some(connection) = state.connections.get_mut(&id) else {
            return Ok(());
        };
        if connection.was_reset {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if connection.writes == StreamDirection::Open {
            connection.writes = StreamDirection::Ended;
            state.send(id, RelayFrame::End)?;
            self.has_unsent.notify_one();
        }
        Ok(())
    }

    /// Forgets a connection whose stream was dropped, and lets the relay close it: by this frame, unless it is over.
    pub(super) fn forget(&self, id: u32, last: RelayFrame<'_>) {
        let mut state = self.lock();
        let Some(connection) = state.connections.remove(&id) else {
            return;
        };
        connection.window.release(&mut state.full_windows);
        let both_ended =
            connection.reads == StreamDirection::Ended && connection.writes == StreamDirection::Ended;
        if !state.is_closed && !connection.was_reset && !both_ended && state.send(id, last).is_ok() {
            self.has_unsent.notify_one();
        }
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.lock().connections.len()
    }

    #[cfg(test)]
    pub(super) fn received_bytes(&self) -> usize {
        let state = self.lock();
        state
            .connections
            .values()
            .map(|connection| connection.received.len())
            .sum()
    }

    #[cfg(test)]
    pub(super) fn unsent_bytes(&self) -> usize {
        self.lock().unsent.len()
    }

    fn lock(&self) -> MutexGuard<'_, DemultiplexerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DemultiplexerState {
    fn send(&mut self, id: u32, frame: RelayFrame<'_>) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        frame.append_to(id, &mut self.unsent).map_err(io::Error::other)
    }

    /// Opens a connection; `None` if it is refused at once.
    fn open(&mut self, id: u32, listener: u16) -> io::Result<Option<(Arc<Gateway>, ListenerProtocol)>> {
        if self.last_id.checked_add(1) != Some(id) {
            return Err(broken_rule());
        }
        self.last_id = id;
        let served = self.served.as_ref().ok_or_else(broken_rule)?;
        let Some((ListenerTransport::Tcp, protocol)) = served.listeners.get(usize::from(listener)).copied()
        else {
            return Err(broken_rule());
        };
        let gateway = served.gateway.upgrade();
        match gateway.filter(|_| self.connections.len() < MAX_CONNECTIONS) {
            Some(gateway) => {
                self.connections.insert(id, ConnectionState::default());
                Ok(Some((gateway, protocol)))
            }
            None => self.send(id, RelayFrame::Reset).map(|()| None),
        }
    }

    fn deliver(&mut self, id: u32, frame: RelayFrame<'_>) -> io::Result<()> {
        match frame {
            RelayFrame::Control(text) => {
                let response = self.response.take().ok_or_else(broken_rule)?;
                // The receiver may have stopped waiting.
                let _ = response.send(text.to_owned());
                Ok(())
            }
            RelayFrame::Datagram(datagram) => self.queue_query(id, datagram),
            RelayFrame::Hello(_) | RelayFrame::Opened { .. } | RelayFrame::Close => Err(broken_rule()),
            RelayFrame::Data(_) | RelayFrame::Credit(_) | RelayFrame::End | RelayFrame::Reset => {
                self.deliver_to_connection(id, frame)
            }
        }
    }

    fn queue_query(&self, listener: u32, datagram: Datagram<'_>) -> io::Result<()> {
        let served = self.served.as_ref().ok_or_else(broken_rule)?;
        let Some((ListenerTransport::Udp, _)) = served.listeners.get(listener as usize) else {
            return Err(broken_rule());
        };
        // If too many wait already, the client repeats its query.
        let _ = served.queries.try_send(DnsQuery {
            listener,
            client: datagram.client,
            server: datagram.server,
            bytes: datagram.bytes.to_owned(),
        });
        Ok(())
    }

    fn deliver_to_connection(&mut self, id: u32, frame: RelayFrame<'_>) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&id) else {
            // The stream was dropped while the frame was in flight.
            return if (1..=self.last_id).contains(&id) {
                Ok(())
            } else {
                Err(broken_rule())
            };
        };
        match frame {
            RelayFrame::Data(bytes) => {
                if connection.reads == StreamDirection::Ended {
                    return Err(broken_rule());
                }
                connection.window.receive(bytes.len()).ok_or_else(broken_rule)?;
                connection.received.extend_from_slice(bytes);
                connection.reader.take().into_iter().for_each(Waker::wake);
            }
            RelayFrame::Credit(bytes) => {
                connection.credit.add(bytes).ok_or_else(broken_rule)?;
                connection.writer.take().into_iter().for_each(Waker::wake);
            }
            RelayFrame::End => {
                connection.reads = StreamDirection::Ended;
                connection.reader.take().into_iter().for_each(Waker::wake);
            }
            _ => {
                connection.was_reset = true;
                connection.wake();
            }
        }
        Ok(())
    }
}

fn broken_rule() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the relay broke a rule of its protocol",
    )
}
