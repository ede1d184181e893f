//! One relayed connection, as a stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::demultiplexer::Demultiplexer;
use crate::gateway::ClientStream;
use crate::guest::relay_protocol::RelayFrame;

/// One relayed connection. Dropping it closes the connection once all data is delivered.
#[derive(Debug)]
pub(super) struct RelayedStream {
    demultiplexer: Arc<Demultiplexer>,
    id: u32,
    resets: AtomicBool,
}

impl RelayedStream {
    /// The stream of an open connection.
    pub(super) fn new(demultiplexer: Arc<Demultiplexer>, id: u32) -> Self {
        Self {
            demultiplexer,
            id,
            resets: AtomicBool::new(false),
        }
    }
}

impl AsyncRead for RelayedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.demultiplexer.poll_read(self.id, context, buffer)
    }
}

impl AsyncWrite for RelayedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.demultiplexer.poll_write(self.id, context, bytes)
    }

    /// What was written is sent anyway.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.demultiplexer.shut_down(self.id))
    }
}

impl ClientStream for RelayedStream {
    fn reset_on_close(&self) {
        self.resets.store(true, Ordering::Relaxed);
    }
}

impl Drop for RelayedStream {
    fn drop(&mut self) {
        let last = if self.resets.load(Ordering::Relaxed) {
            RelayFrame::Reset
        } else {
            RelayFrame::Close
        };
        self.demultiplexer.forget(self.id, last);
    }
}
