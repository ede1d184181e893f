//! Copies bytes in both directions.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::permit::{Permit, TrafficCounter};
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
    let (sent, received) = (permit.sent(slot), permit.received(slot));
    let up = async {
        sent.send(&to_upstream, &mut upstream_write).await?;
        copy(&mut client_read, &mut upstream_write, sent).await
    };
    let down = async {
        received.send(&to_client, &mut client_write).await?;
        copy(&mut upstream_read, &mut client_write, received).await
    };
    tokio::select! {
        copied = async { tokio::try_join!(up, down) } => copied.map(|_| ()),
        () = permit.until_revoked() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Copies all bytes, and passes the end of the stream on.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    counter: TrafficCounter<'_>,
) -> io::Result<()> {
    let mut chunk = vec![0; FIRST_CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        counter.send(&chunk[..length], to).await?;
        if length == chunk.len() && length < MAX_CHUNK {
            chunk.resize(length * 2, 0);
        }
    }
}
