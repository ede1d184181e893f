//! Serves the connections of a sandbox by the protocol of their listener.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::http::{self, RequestScope};
use super::shared::{GatewayCore, ServedConnection};
use super::stream::{Buffered, ClientStream};
use super::{dns, proxy, tcp, tls};

/// The protocol of a listener's connections. The port is the one that the sandbox connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerProtocol {
    /// DNS over TCP.
    Dns,
    /// Plain HTTP. The policy judges the host of each request.
    Http {
        /// Usually 80.
        port: u16,
    },
    /// TLS. The policy judges the server name in the client hello.
    Tls {
        /// Usually 443.
        port: u16,
    },
    /// Any other protocol. The policy judges the name that the destination address stands for.
    Tcp {
        /// A port that the policy names.
        port: u16,
    },
    /// The explicit HTTP proxy.
    Proxy,
}

impl fmt::Display for ListenerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns => f.write_str("DNS"),
            Self::Http { port } => write!(f, "HTTP on port {port}"),
            Self::Tls { port } => write!(f, "TLS on port {port}"),
            Self::Tcp { port } => write!(f, "TCP on port {port}"),
            Self::Proxy => f.write_str("the proxy"),
        }
    }
}

/// Delay after a failed accept, for example because too many files are open.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// Serves the connections of a listener, until the future is dropped.
pub(super) async fn accept(core: Arc<GatewayCore>, protocol: ListenerProtocol, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = listener.accept().await;
        let accepted = accepted.and_then(|(client, _)| client.local_addr().map(|to| (client, to)));
        let Ok((client, destination)) = accepted else {
            core.slots.evict_one();
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        // Without it small messages are delayed.
        let _ = client.set_nodelay(true);
        connections.spawn(serve(core.clone(), protocol, Box::new(client), destination));
    }
}

/// Serves one connection until it is closed.
pub(super) async fn serve(
    core: Arc<GatewayCore>,
    protocol: ListenerProtocol,
    client: Box<dyn ClientStream>,
    destination: SocketAddr,
) {
    let slot = core.slots.acquire();
    let connection = ServedConnection {
        core: &core,
        slot: &slot,
        client: Buffered::new(client),
    };
    let served = async {
        match protocol {
            ListenerProtocol::Dns => dns::serve_tcp(&core, connection.client.stream, &slot).await,
            ListenerProtocol::Http { port } => http::serve(connection, RequestScope::Port(port)).await,
            ListenerProtocol::Tls { port } => tls::serve(connection, None, port).await,
            ListenerProtocol::Tcp { port } => {
                tcp::serve(connection, core.host_at(destination.ip()), port).await
            }
            ListenerProtocol::Proxy => proxy::serve(connection).await,
        }
    };
    tokio::select! {
        ended = served => if let Err(error) = ended {
            tracing::debug!(%protocol, %error, "a connection of a sandbox failed");
        },
        () = slot.expired(core.setup.limits.idle_timeout) => {}
    }
}
