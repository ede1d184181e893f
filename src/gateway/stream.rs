//! Connections as the gateway sees them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// The most that is read at once.
const MOST_READ: usize = 64 * 1024;
/// What is read at first, so that a silent connection costs little.
const FIRST_READ: usize = 2 * 1024;

/// A connection in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A connection that a sandbox opened.
pub trait Client: ByteStream {
    /// Prepares the connection to end with a reset instead of in peace.
    fn reset_on_close(&self);
}

impl Client for TcpStream {
    fn reset_on_close(&self) {
        // Without it the connection ends in peace, which is as final.
        let _ = self.set_zero_linger();
    }
}

/// A stream together with what was read from it and not used yet.
pub(super) struct Buffered<S> {
    pub(super) stream: S,
    pub(super) buffer: BytesMut,
    next_read: usize,
}

impl<S> Buffered<S> {
    pub(super) fn new(stream: S) -> Self {
        Self::with_buffer(stream, BytesMut::new())
    }

    pub(super) fn with_buffer(stream: S, buffer: BytesMut) -> Self {
        Self {
            stream,
            buffer,
            next_read: FIRST_READ,
        }
    }

    /// Everything that was read and not used yet.
    pub(super) fn take(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }
}

impl<S: AsyncRead + Unpin> Buffered<S> {
    /// Reads some more; 0 when there is no more. Nothing is lost when it is cancelled.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(self.next_read);
        let count = self.stream.read_buf(&mut self.buffer).await?;
        if count >= self.next_read {
            self.next_read = (self.next_read * 2).min(MOST_READ);
        }
        Ok(count)
    }

    /// [`Buffered::fill`], where the end comes too early.
    pub(super) async fn fill_some(&mut self) -> io::Result<usize> {
        match self.fill().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

impl<S: ByteStream> Buffered<S> {
    /// Says a last word and ends in peace: the client hears it although it may still be talking.
    pub(super) async fn say_goodbye(mut self, last_word: &[u8]) {
        let said = async {
            self.stream.write_all(last_word).await?;
            self.stream.shutdown().await?;
            let mut left = LISTEN_BYTES;
            while left > 0 {
                self.buffer.clear();
                let count = self.fill().await?;
                if count == 0 {
                    break;
                }
                left = left.saturating_sub(count);
            }
            Ok::<(), io::Error>(())
        };
        let _ = tokio::time::timeout(LISTEN_TIME, said).await;
    }
}

/// First what was read already, then the rest.
impl<S: AsyncRead + Unpin> AsyncRead for Buffered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.buffer.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let length = self.buffer.len().min(into.remaining());
        into.put_slice(&self.buffer.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Buffered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    // TLS says its last word in pieces, and only once.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// How much a client may go on saying, and how long, after it was told no.
const LISTEN_BYTES: usize = 256 * 1024;
const LISTEN_TIME: std::time::Duration = std::time::Duration::from_secs(1);
