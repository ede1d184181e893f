//! Copies bytes in both directions.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::permit::Permit;
use super::slots::ConnectionSlot;
use super::stream::{Buffered, ByteStream};

/// The initial and the largest buffer, in bytes.
const FIRST_CHUNK: usize = 8 * 1024;
const MAX_CHUNK: usize = 256 * 1024;

/// Copies buffered bytes and then all others in both directions, until both sides end or the permit is revoked.
pub(super) async fn relay(
    client: &mut Buffered<impl ByteStream>,
    upstream: &mut Buffered<impl ByteStream>,
    permit: &Permit,
    slot: &ConnectionSlot,
) -> io::Result<()> {
    let (to_upstream, to_client) = (client.take(), upstream.take());
    let (mut client_read, mut client_write) = tokio::io::split(&mut client.stream);
    let (mut upstream_read, mut upstream_write) = tokio::io::split(&mut upstream.stream);
    let sent = TrafficWriter(&permit.sent, slot);
    let received = TrafficWriter(&permit.received, slot);
    let up = async {
        sent.send(&to_upstream, &mut upstream_write).await?;
        sent.copy(&mut client_read, &mut upstream_write).await
    };
    let down = async {
        received.send(&to_client, &mut client_write).await?;
        received.copy(&mut upstream_read, &mut client_write).await
    };
    tokio::select! {
        copied = async { tokio::try_join!(up, down) } => copied.map(|_| ()),
        () = permit.revoked() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Counts the bytes in one direction, and records the activity of the connection.
#[derive(Clone, Copy)]
pub(super) struct TrafficWriter<'a>(pub(super) &'a AtomicU64, pub(super) &'a ConnectionSlot);

impl TrafficWriter<'_> {
    /// Writes bytes at once. TLS buffers what is not flushed.
    pub(super) async fn send(self, bytes: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        to.write_all(bytes).await?;
        to.flush().await?;
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.1.touch();
        Ok(())
    }

    /// Copies all bytes, and passes the end of the stream on.
    async fn copy(
        self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut chunk = vec![0; FIRST_CHUNK];
        loop {
            let length = from.read(&mut chunk).await?;
            if length == 0 {
                return to.shutdown().await;
            }
            self.send(&chunk[..length], to).await?;
            if length == chunk.len() && length < MAX_CHUNK {
                chunk.resize(length * 2, 0);
            }
        }
    }
}
