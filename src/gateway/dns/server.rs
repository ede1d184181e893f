//! DNS over datagrams and over connections.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::answer;
use crate::gateway::core::Core;
use crate::gateway::seats::Seat;
use crate::gateway::stream::Client;

/// The longest query that is read.
const LONGEST: usize = 4096;
/// How many queries one connection may carry.
const QUERIES: usize = 256;

/// How long to wait after datagrams could not be received.
const PAUSE: Duration = Duration::from_millis(5);

/// Answers datagrams for as long as it is polled. Each answer comes from the address that was asked.
pub(in crate::gateway) async fn serve_udp(core: Arc<Core>, socket: UdpSocket) -> io::Result<()> {
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    // The kernel may hand over several datagrams at once.
    let mut buffer = vec![0; LONGEST * state.gro_segments().max(1)];
    loop {
        let mut meta = RecvMeta::default();
        let received = socket
            .async_io(Interest::READABLE, || {
                let mut slices = [IoSliceMut::new(&mut buffer)];
                state.recv((&socket).into(), &mut slices, std::slice::from_mut(&mut meta))
            })
            .await;
        if received.is_err() {
            // A client that is gone already is told of in the next call; that is no reason to stop.
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        for query in buffer[..meta.len].chunks(meta.stride.max(1)) {
            let Some(reply) = answer(query, |name| core.look_up(name)) else {
                continue;
            };
            let transmit = Transmit {
                destination: meta.addr,
                ecn: None,
                contents: &reply,
                segment_size: None,
                src_ip: meta.dst_ip,
            };
            // A client whose queue is full asks again.
            let _ = state.try_send((&socket).into(), &transmit);
        }
    }
}

/// Answers the queries of one connection.
pub(in crate::gateway) async fn serve_tcp(
    core: &Core,
    mut client: impl Client,
    seat: &Seat,
) -> io::Result<()> {
    for _ in 0..QUERIES {
        let query = timeout(core.limits.hello, read_query(&mut client));
        let Ok(Ok(Some(query))) = query.await else {
            return Ok(());
        };
        seat.touch();
        let Some(reply) = answer(&query, |name| core.look_up(name)) else {
            return Ok(());
        };
        let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
        client
            .write_all(&[&length.to_be_bytes(), reply.as_slice()].concat())
            .await?;
    }
    Ok(())
}

/// One query; `None` when it is too long to be one.
async fn read_query(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let length = usize::from(client.read_u16().await?);
    if length > LONGEST {
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
        fn a_query_over_a_connection_takes_no_more_room_than_it_may(
            bytes in prop::collection::vec(any::<u8>(), 0..6000),
            claimed in any::<u16>(),
        ) {
            let said = [&claimed.to_be_bytes(), bytes.as_slice()].concat();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            match runtime.block_on(read_query(&mut said.as_slice())) {
                Ok(Some(query)) => prop_assert!(query.len() == usize::from(claimed) && query.capacity() <= LONGEST),
                Ok(None) => prop_assert!(usize::from(claimed) > LONGEST),
                Err(_) => prop_assert!(bytes.len() < usize::from(claimed)),
            }
        }
    }
}
