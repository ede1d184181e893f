//! Exports an image from an engine.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::{Digest, Engine, EngineError};

/// The most pieces in memory that wait to be read.
const MAX_PIECES: usize = 16;

impl Engine {
    /// Passes an image to `read` as a stream in the format of `docker save`. `read` may block, and may stop early.
    pub async fn save<T: Send + 'static>(
        &self,
        image: &Digest,
        read: impl FnOnce(&mut dyn Read) -> io::Result<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let subject = &image.to_string();
        let unreadable = |source| EngineError::Content {
            subject: subject.to_owned(),
            source,
        };
        let (sender, receiver) = mpsc::channel(MAX_PIECES);
        let piece = Bytes::new();
        let reader = tokio::task::spawn_blocking(move || read(&mut ChannelReader { receiver, piece }));
        let docker = self.long_running();
        let mut pieces = docker.export_image(subject).boxed();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| EngineError::from_api(subject, error))?;
            if sender.send(piece).await.is_err() {
                break;
            }
        }
        drop(sender);
        let read = reader.await.map_err(|error| unreadable(error.into()))?;
        read.map_err(unreadable)
    }
}

/// Reads from a channel.
struct ChannelReader {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for ChannelReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let taken = into.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut into[..taken]);
        Ok(taken)
    }
}
