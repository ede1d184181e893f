//! Tar archives that are written while they are sent.

use std::fmt;
use std::io::{self, Write};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The size of a piece in bytes. Each piece wakes a thread.
const PIECE: usize = 1 << 20;
/// The most pieces in memory that wait to be sent.
const MAX_PIECES: usize = 3;

type Writer = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// A tar archive that is not in memory or on disk as a whole: a function writes it on its own thread while it is sent.
pub struct TarStream(Writer);

impl TarStream {
    /// The archive that this function writes. It may block.
    pub fn written_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Self {
        Self(Box::new(write))
    }

    /// Writes the archive on the current thread.
    pub(crate) fn write_to(self, out: &mut dyn Write) -> io::Result<()> {
        (self.0)(out)
    }

    /// Starts writing. The stream fails when the writer fails, so that a partial archive is not taken for a complete one.
    /// The handle returns the error of the writer.
    pub(super) fn start(
        self,
    ) -> (
        impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        JoinHandle<io::Result<()>>,
    ) {
        let (sender, receiver) = mpsc::channel(MAX_PIECES);
        let writer = tokio::task::spawn_blocking(move || {
            let mut channel = ChannelWriter {
                sender,
                piece: BytesMut::with_capacity(PIECE),
            };
            let written = self.write_to(&mut channel).and_then(|()| channel.flush());
            if let Err(error) = &written {
                let _ = channel.sender.blocking_send(Err(error.kind().into()));
            }
            written
        });
        let next =
            |mut receiver: mpsc::Receiver<_>| async { receiver.recv().await.map(|piece| (piece, receiver)) };
        (unfold(receiver, next), writer)
    }
}

impl fmt::Debug for TarStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TarStream")
    }
}

/// Writes to a channel.
struct ChannelWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: BytesMut,
}

impl Write for ChannelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, BytesMut::with_capacity(PIECE)).freeze();
        self.sender
            .blocking_send(Ok(piece))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, TryStreamExt};

    use super::*;

    #[tokio::test]
    async fn the_stream_contains_everything_that_was_written() {
        let bytes: Vec<u8> = (0..3_000_000u32)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        let expected = bytes.clone();
        let (stream, writer) = TarStream::written_by(move |out| out.write_all(&bytes)).start();
        let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
        assert!(pieces.concat() == expected);
        writer.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_writer_that_fails_fails_the_stream() {
        let (stream, writer) = TarStream::written_by(|out| {
            out.write_all(b"beginning")?;
            Err(io::Error::other("the disk is gone"))
        })
        .start();
        let last = stream.collect::<Vec<_>>().await.pop().unwrap();
        assert!(last.is_err());
        assert_eq!(writer.await.unwrap().unwrap_err().to_string(), "the disk is gone");
    }

    #[tokio::test]
    async fn a_writer_stops_when_the_stream_is_dropped() {
        let (stream, writer) = TarStream::written_by(|out| {
            loop {
                out.write_all(&[0; 4096])?;
            }
        })
        .start();
        drop(stream);
        assert_eq!(
            writer.await.unwrap().unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
