//! Carries bytes both ways until both sides are done.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::permit::Permit;
use super::seats::Seat;
use super::stream::{Buffered, ByteStream};

/// What is carried at once in the beginning, and at most.
const FIRST_CHUNK: usize = 8 * 1024;
const LARGEST_CHUNK: usize = 256 * 1024;

/// Carries bytes both ways, first what was read already, until both sides are done or the permit is revoked.
pub(super) async fn relay(
    client: &mut Buffered<impl ByteStream>,
    upstream: &mut Buffered<impl ByteStream>,
    permit: &Permit,
    seat: &Seat,
) -> io::Result<()> {
    let (to_upstream, to_client) = (client.take(), upstream.take());
    let (mut client_read, mut client_write) = tokio::io::split(&mut client.stream);
    let (mut upstream_read, mut upstream_write) = tokio::io::split(&mut upstream.stream);
    let traffic = &permit.traffic;
    let up = async {
        upstream_write.write_all(&to_upstream).await?;
        upstream_write.flush().await?;
        count(&traffic.sent, to_upstream.len());
        carry(&mut client_read, &mut upstream_write, &traffic.sent, seat).await
    };
    let down = async {
        client_write.write_all(&to_client).await?;
        client_write.flush().await?;
        count(&traffic.received, to_client.len());
        carry(&mut upstream_read, &mut client_write, &traffic.received, seat).await
    };
    tokio::select! {
        carried = async { tokio::try_join!(up, down) } => carried.map(|_| ()),
        () = permit.revoked() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Adds to a count.
pub(super) fn count(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Carries bytes one way to the end, and passes the end on.
async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    counter: &AtomicU64,
    seat: &Seat,
) -> io::Result<()> {
    let mut chunk = vec![0; FIRST_CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        seat.touch();
        to.write_all(&chunk[..length]).await?;
        // TLS keeps back what is not asked for.
        to.flush().await?;
        count(counter, length);
        if length == chunk.len() && length < LARGEST_CHUNK {
            chunk.resize(length * 2, 0);
        }
    }
}
