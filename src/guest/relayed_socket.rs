//! One connection of the sandbox that is relayed.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::relay_protocol::{FullWindows, ReceiveWindow, SendCredit};
use super::sys_net;

/// How long a client may take to read what is left when its connection is over for ralph.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// One connection of the sandbox, and the data that its client has not read yet.
#[derive(Debug)]
pub(crate) struct RelayedSocket {
    socket: TcpStream,
    /// Data for the client. The window bounds it.
    queue: VecDeque<u8>,
    window: ReceiveWindow,
    pub(crate) credit: SendCredit,
    reads: Direction,
    writes: Direction,
    /// Ralph closed the connection, or both directions ended; it is over when the queue is empty, or at this time.
    closes_by: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Open,
    Ended,
}

impl RelayedSocket {
    pub(crate) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Without it small messages are delayed.
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            queue: VecDeque::new(),
            window: ReceiveWindow::default(),
            credit: SendCredit::default(),
            reads: Direction::Open,
            writes: Direction::Open,
            closes_by: None,
        })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn wants_to_read(&self) -> bool {
        self.reads == Direction::Open && self.closes_by.is_none() && self.credit.left() > 0
    }

    pub(crate) fn wants_to_write(&self) -> bool {
        !self.queue.is_empty()
    }

    /// When it must be dropped, whether its client has read everything or not.
    pub(crate) fn closes_by(&self) -> Option<Instant> {
        self.closes_by
    }

    /// Whether nothing is left to do for it.
    pub(crate) fn is_over(&self) -> bool {
        self.queue.is_empty() && self.closes_by.is_some()
    }

    /// Reads from the client, as far as there is credit. Returns the number of bytes, 0 at the end of its data, and `None`
    /// if there is nothing to read now.
    pub(crate) fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        let limit = chunk.len().min(self.credit.left());
        match self.socket.read(&mut chunk[..limit]) {
            Ok(0) => {
                self.reads = Direction::Ended;
                self.close_if_ended();
                Ok(Some(0))
            }
            Ok(count) => {
                self.credit.spend(count);
                Ok(Some(count))
            }
            Err(error) if is_temporary(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records data for the client. `None` if ralph had no credit for it, or has ended its data.
    pub(crate) fn receive(&mut self, bytes: usize) -> Option<()> {
        if self.writes == Direction::Ended || self.closes_by.is_some() {
            return None;
        }
        self.window.receive(bytes)
    }

    /// Writes what is queued and then these bytes, as far as the client accepts them, and queues the rest. Returns the
    /// credit to give to ralph.
    pub(crate) fn write(&mut self, bytes: &[u8], full_windows: &mut FullWindows) -> io::Result<Option<u32>> {
        let mut written = 0;
        // Most data is never queued, which saves a copy.
        if self.queue.is_empty() && !bytes.is_empty() {
            written = match self.socket.write(bytes) {
                Err(error) if is_temporary(&error) => 0,
                written => written?,
            };
        }
        self.queue.extend(&bytes[written..]);
        while let (front, _) = self.queue.as_slices()
            && !front.is_empty()
        {
            match self.socket.write(front) {
                Ok(count) => {
                    self.queue.drain(..count);
                    written += count;
                }
                Err(error) if is_temporary(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
            self.shut_down_if_ended()?;
        }
        if written == 0 || self.closes_by.is_some() {
            return Ok(None);
        }
        Ok(self.window.deliver(written, full_windows))
    }

    /// Ralph has no more data.
    pub(crate) fn end_writes(&mut self) -> io::Result<()> {
        self.writes = Direction::Ended;
        self.close_if_ended();
        self.shut_down_if_ended()
    }

    fn close_if_ended(&mut self) {
        if self.reads == Direction::Ended && self.writes == Direction::Ended {
            self.close();
        }
    }

    fn shut_down_if_ended(&self) -> io::Result<()> {
        if self.writes == Direction::Ended && self.queue.is_empty() {
            self.socket.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// Ralph closed the connection.
    pub(crate) fn close(&mut self) {
        self.closes_by
            .get_or_insert_with(|| Instant::now() + CLOSE_TIMEOUT);
    }

    /// Ends the connection at once with a reset.
    pub(crate) fn reset(&self) {
        // When it fails, the connection is closed normally.
        let _ = sys_net::reset_on_close(&self.socket);
    }

    /// Gives back what it shares with other connections.
    pub(crate) fn release(&self, full_windows: &mut FullWindows) {
        self.window.release(full_windows);
    }
}

pub(crate) fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
