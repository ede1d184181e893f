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
    let traffic = &permit.traffic;
    let up = async {
        send(&to_upstream, &mut upstream_write, &traffic.sent).await?;
        copy(&mut client_read, &mut upstream_write, &traffic.sent, slot).await
    };
    let down = async {
        send(&to_client, &mut client_write, &traffic.received).await?;
        copy(&mut upstream_read, &mut client_write, &traffic.received, slot).await
    };
    tokio::select! {
        copied = async { tokio::try_join!(up, down) } => copied.map(|_| ()),
        () = permit.revoked() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Writes bytes at once and counts them. TLS buffers what is not flushed.
pub(super) async fn send(
    bytes: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    counter: &AtomicU64,
) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await?;
    counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// Copies bytes in one direction, and passes the end of the stream on.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    counter: &AtomicU64,
    slot: &ConnectionSlot,
) -> io::Result<()> {
    let mut chunk = vec![0; FIRST_CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        slot.touch();
        send(&chunk[..length], to, counter).await?;
        if length == chunk.len() && length < MAX_CHUNK {
            chunk.resize(length * 2, 0);
        }
    }
}
