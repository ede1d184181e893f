//! Serves DNS over UDP and TCP.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::respond;
use crate::gateway::shared::GatewayCore;
use crate::gateway::slots::ConnectionSlot;
use crate::gateway::stream::ByteStream;

/// The longest query, in bytes.
const MAX_QUERY: usize = 4096;
/// The most queries of one connection.
const MAX_QUERIES: usize = 256;

/// Delay after a failed receive.
const RECEIVE_RETRY: Duration = Duration::from_millis(5);

/// Answers UDP queries until the future is dropped. Each response is sent from the address that the query was sent to.
pub(in crate::gateway) async fn serve_udp(core: Arc<GatewayCore>, socket: UdpSocket) -> io::Result<()> {
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    // The kernel may return several datagrams at once.
    let mut buffer = vec![0; MAX_QUERY * state.gro_segments().max(1)];
    loop {
        let mut meta = RecvMeta::default();
        let received = socket
            .async_io(Interest::READABLE, || {
                let mut slices = [IoSliceMut::new(&mut buffer)];
                state.recv((&socket).into(), &mut slices, std::slice::from_mut(&mut meta))
            })
            .await;
        if received.is_err() {
            // An ICMP error of an earlier response is reported here too.
            tokio::time::sleep(RECEIVE_RETRY).await;
            continue;
        }
        for query in buffer[..meta.len].chunks(meta.stride.max(1)) {
            let Some(reply) = respond(query, |name| core.look_up(name)) else {
                continue;
            };
            let transmit = Transmit {
                destination: meta.addr,
                ecn: None,
                contents: &reply,
                segment_size: None,
                src_ip: meta.dst_ip,
            };
            // When the send buffer is full, the client repeats its query.
            let _ = state.try_send((&socket).into(), &transmit);
        }
    }
}

/// Answers the queries of one connection.
pub(in crate::gateway) async fn serve_tcp(
    core: &GatewayCore,
    mut client: impl ByteStream,
    slot: &ConnectionSlot,
) -> io::Result<()> {
    for _ in 0..MAX_QUERIES {
        let query = timeout(core.setup.limits.receive_timeout, read_query(&mut client));
        let Ok(Ok(Some(query))) = query.await else {
            return Ok(());
        };
        slot.touch();
        let Some(reply) = respond(&query, |name| core.look_up(name)) else {
            return Ok(());
        };
        let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
        client
            .write_all(&[&length.to_be_bytes(), reply.as_slice()].concat())
            .await?;
    }
    Ok(())
}

/// Reads one query; `None` when it is too long.
async fn read_query(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let length = usize::from(client.read_u16().await?);
    if length > MAX_QUERY {
        return Ok(None);
    }
    let mut query = vec![0; length];
    client.read_exact(&mut query).await?;
    Ok(Some(query))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_memory_of_a_tcp_query_is_limited(
            bytes in prop::collection::vec(any::<u8>(), 0..6000),
            claimed in any::<u16>(),
        ) {
            let said = [&claimed.to_be_bytes(), bytes.as_slice()].concat();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            match runtime.block_on(read_query(&mut said.as_slice())) {
                Ok(Some(query)) => prop_assert!(query.len() == usize::from(claimed) && query.capacity() <= MAX_QUERY),
                Ok(None) => prop_assert!(usize::from(claimed) > MAX_QUERY),
                Err(_) => prop_assert!(bytes.len() < usize::from(claimed)),
            }
        }
    }
}
