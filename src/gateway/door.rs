//! The ways in.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::core::{Core, Session};
use super::http::{self, Scope};
use super::stream::{Buffered, Client};
use super::{dns, proxy, tcp, tls};

/// What the connections of a listener are for. The port is the one that the sandbox believes to speak to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// DNS over TCP.
    Dns,
    /// Plain HTTP, by the host of each request.
    Http {
        /// Usually 80.
        port: u16,
    },
    /// TLS, by the name in the hello.
    Tls {
        /// Usually 443.
        port: u16,
    },
    /// Any other protocol, by the address that the connection was made to.
    Tcp {
        /// One that the policy names.
        port: u16,
    },
    /// The explicit proxy.
    Proxy,
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns => f.write_str("DNS"),
            Self::Http { port } => write!(f, "HTTP at port {port}"),
            Self::Tls { port } => write!(f, "TLS at port {port}"),
            Self::Tcp { port } => write!(f, "TCP at port {port}"),
            Self::Proxy => f.write_str("the proxy"),
        }
    }
}

/// How long to wait when no connection can be accepted, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves every connection of a listener, until it is dropped.
pub(super) async fn accept(core: Arc<Core>, door: Door, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = listener.accept().await;
        let accepted = accepted.and_then(|(client, _)| client.local_addr().map(|to| (client, to)));
        let Ok((client, destination)) = accepted else {
            core.seats.make_room();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // Small messages are not held back; where that cannot be had, they come a little later.
        let _ = client.set_nodelay(true);
        connections.spawn(serve(core.clone(), door, client, destination));
    }
}

/// Serves one connection to its end.
pub(super) async fn serve<C: Client>(core: Arc<Core>, door: Door, client: C, destination: SocketAddr) {
    let seat = core.seats.take();
    let session = Session {
        core: &core,
        seat: &seat,
        client: Buffered::new(client),
    };
    let served = async {
        match door {
            Door::Dns => dns::serve_tcp(&core, session.client.stream, &seat).await,
            Door::Http { port } => http::serve(session, Scope::Port(port)).await,
            Door::Tls { port } => tls::serve(session, tls::Target { port, expected: None }).await,
            Door::Tcp { port } => tcp::serve(session, core.host_at(destination.ip()), port).await,
            Door::Proxy => proxy::serve(session).await,
        }
    };
    tokio::select! {
        ended = served => if let Err(error) = ended {
            tracing::debug!(%door, %error, "a connection broke");
        },
        () = seat.is_over(core.limits.idle) => {}
    }
}
