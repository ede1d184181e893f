//! Where a sandbox sends its requests to one service.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::gateway::CredentialInjector;
use crate::gateway::broker::{BrokerHandle, VerifyError, check_health};
use crate::network::HostName;
use crate::sandbox::CredentialRoute;
use crate::text::error_chain;

use super::super::{AssemblyError, ErrorTopic};

/// Where a sandbox sends its requests to one service, and where they go from there.
#[derive(Clone)]
pub(crate) struct BrokerEndpoint {
    broker: BrokerHandle,
    /// The service's name inside the sandbox.
    host: HostName,
    /// The service's real address.
    pub(crate) service: String,
    listener: Option<LoopbackListener>,
}

/// A port on the host's loopback interface.
#[derive(Clone, Copy)]
struct LoopbackListener {
    address: SocketAddr,
    /// Whether the sandbox reaches it through a proxy, as `host.docker.internal`.
    proxied: bool,
}

impl BrokerEndpoint {
    /// Opens the way that a sandbox with this route takes: its gateway, or a port of the loopback interface, which is
    /// served for as long as `servers` live.
    pub(super) async fn open(
        route: CredentialRoute,
        broker: BrokerHandle,
        host: HostName,
        service: String,
        servers: &mut JoinSet<()>,
    ) -> Result<Self, AssemblyError> {
        let cannot_listen = |error: io::Error| {
            AssemblyError::runtime(format!("cannot listen on 127.0.0.1: {error}"))
                .with_topic(ErrorTopic::Credentials)
        };
        let listener = if route == CredentialRoute::Gateway {
            None
        } else {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            let listener = listener.await.map_err(cannot_listen)?;
            let address = listener.local_addr().map_err(cannot_listen)?;
            let (broker, host) = (broker.clone(), host.clone());
            servers.spawn(async move {
                if let Err(error) = broker.serve(listener, &host).await {
                    tracing::warn!(error = %error_chain(&error), %host, "the broker stopped serving");
                }
            });
            let proxied = route == CredentialRoute::ProxiedLoopback;
            Some(LoopbackListener { address, proxied })
        };
        Ok(Self {
            broker,
            host,
            service,
            listener,
        })
    }

    /// The address that the sandbox uses.
    pub(super) fn address(&self) -> String {
        match self.listener {
            None => format!("http://{}", self.host),
            Some(LoopbackListener { address, proxied }) if proxied => {
                format!("http://host.docker.internal:{}", address.port())
            }
            Some(LoopbackListener { address, .. }) => format!("http://{address}"),
        }
    }

    /// The rule that lets a sandbox reach it; `None` where no policy applies.
    pub(super) fn rule(&self) -> Option<String> {
        match self.listener {
            None => Some(format!("{}:80", self.host)),
            Some(listener) => listener
                .proxied
                .then(|| format!("localhost:{}", listener.address.port())),
        }
    }

    /// Fails when requests would not be served.
    pub(crate) async fn health(&self) -> io::Result<()> {
        match self.listener {
            None => check_health(self.broker.open(&self.host).await?).await,
            Some(listener) => check_health(TcpStream::connect(listener.address).await?).await,
        }
    }

    /// Asks the service whether it accepts the credential.
    pub(crate) async fn verify(&self) -> Result<(), VerifyError> {
        self.broker.verify(&self.host).await
    }
}
