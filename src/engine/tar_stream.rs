//! Tar files that are written while they are sent.

use std::fmt;
use std::io::{self, Write};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How much is handed over at once, and how many such pieces wait at most: what bounds the memory a stream takes. Each
/// piece wakes a thread.
const PIECE: usize = 1 << 20;
const PIECES: usize = 3;

type Writer = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// A tar file that does not exist as a whole anywhere: a function that writes it, on a thread of its own, as fast as it
/// is read.
pub struct TarStream(Writer);

impl TarStream {
    /// The tar file that this function writes. It may block.
    pub fn written_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Self {
        Self(Box::new(write))
    }

    /// Writes it here and now.
    pub(crate) fn write_to(self, out: &mut dyn Write) -> io::Result<()> {
        (self.0)(out)
    }

    /// Starts writing. The stream fails where the writer fails, so that its end is never taken for the file's; the
    /// handle holds the true cause.
    pub(super) fn start(
        self,
    ) -> (
        impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        JoinHandle<io::Result<()>>,
    ) {
        let (sender, receiver) = mpsc::channel(PIECES);
        let writer = tokio::task::spawn_blocking(move || {
            let mut pipe = Pipe {
                sender,
                piece: BytesMut::with_capacity(PIECE),
            };
            let written = self.write_to(&mut pipe).and_then(|()| pipe.flush());
            if let Err(error) = &written {
                let _ = pipe.sender.blocking_send(Err(error.kind().into()));
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

/// The end of a channel that is written to.
struct Pipe {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: BytesMut,
}

impl Write for Pipe {
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
    async fn what_is_written_arrives_whole() {
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
    async fn a_writer_nobody_reads_stops() {
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
