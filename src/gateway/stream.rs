//! The byte streams of connections.

use std::io::{self, Cursor};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// The largest read, in bytes.
const MAX_READ: usize = 64 * 1024;
/// The first read, in bytes. It is small, so that an idle connection needs little memory.
const FIRST_READ: usize = 2 * 1024;

/// A byte stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A connection of a sandbox.
pub trait ClientStream: ByteStream {
    /// Makes the connection end with a reset when it is dropped.
    fn reset_on_close(&self);
}

impl ClientStream for TcpStream {
    fn reset_on_close(&self) {
        // When it fails, the connection is closed normally.
        let _ = self.set_zero_linger();
    }
}

/// A stream and the bytes that were read from it but not used yet.
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

    /// Takes the buffered bytes.
    pub(super) fn take(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }
}

impl<S: AsyncRead + Unpin> Buffered<S> {
    /// Reads more bytes into the buffer; 0 at the end. It is cancel safe.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(self.next_read);
        let count = self.stream.read_buf(&mut self.buffer).await?;
        if count >= self.next_read {
            self.next_read = (self.next_read * 2).min(MAX_READ);
        }
        Ok(count)
    }

    /// Like [`Buffered::fill`], but the end of the stream is an error.
    pub(super) async fn fill_more(&mut self) -> io::Result<usize> {
        match self.fill().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

impl<S: ByteStream> Buffered<S> {
    /// Sends a last message and closes the connection. What the client still sends is read and dropped for a while:
    /// otherwise a reset could reach it before the message.
    pub(super) async fn close_with(&mut self, message: &[u8]) {
        let closing = async {
            self.stream.write_all(message).await?;
            self.stream.shutdown().await?;
            let mut left = DRAIN_BYTES;
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
        let _ = tokio::time::timeout(DRAIN_TIME, closing).await;
    }
}

impl<S: AsyncRead + AsyncWrite> Buffered<S> {
    /// A stream whose reads return the buffered bytes first.
    pub(super) fn into_stream(self) -> impl AsyncRead + AsyncWrite {
        let (read, write) = tokio::io::split(self.stream);
        tokio::io::join(Cursor::new(self.buffer).chain(read), write)
    }
}

/// How much, and for how long, a client may send after the last message.
const DRAIN_BYTES: usize = 256 * 1024;
const DRAIN_TIME: std::time::Duration = std::time::Duration::from_secs(1);
