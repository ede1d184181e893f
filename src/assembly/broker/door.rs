//! Where the calls to one service come in.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::gateway::CredentialInjector;
use crate::gateway::broker::{BrokerHandle, ModelUpstream, VerifyError, check_health};
use crate::network::HostName;

/// Where the calls to one service come in.
#[derive(Clone)]
pub(crate) struct Door {
    entrance: BrokerHandle,
    /// The name that the service has in a sandbox.
    host: HostName,
    /// Where the service really is.
    pub(crate) service: String,
    way: Way,
}

/// A service by its name in a sandbox and its address.
pub(super) struct Named {
    pub(super) host: HostName,
    pub(super) address: String,
}

impl Named {
    pub(super) fn of(upstream: &ModelUpstream) -> Self {
        Self {
            host: upstream.host.clone(),
            address: upstream.address().to_owned(),
        }
    }
}

/// How calls come to a door.
#[derive(Clone, Copy)]
enum Way {
    /// By a gateway, which leads the name to it.
    Gateway,
    /// By a port of loopback.
    Loopback(SocketAddr, Inside),
}

/// Where this machine's loopback is for a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// Where it is for every program: the sandbox is a directory of this machine.
    Here,
    /// At a name that the proxy of Docker Sandboxes leads there, as far as it was told to.
    DockerHost,
}

impl Door {
    /// One that a gateway leads to.
    pub(super) fn behind_gateway(entrance: BrokerHandle, service: Named) -> Self {
        Self {
            entrance,
            host: service.host,
            service: service.address,
            way: Way::Gateway,
        }
    }

    /// One on a port of loopback, served for as long as `servers` live.
    pub(super) async fn on_loopback(
        entrance: BrokerHandle,
        service: Named,
        inside: Inside,
        servers: &mut JoinSet<()>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let door = Self {
            way: Way::Loopback(listener.local_addr()?, inside),
            ..Self::behind_gateway(entrance, service)
        };
        let Self { entrance, host, .. } = door.clone();
        servers.spawn(async move {
            if let Err(error) = entrance.serve(listener, &host).await {
                tracing::warn!(%error, %host, "the broker serves no more");
            }
        });
        Ok(door)
    }

    /// Its address, as a sandbox uses it.
    pub(super) fn address(&self) -> String {
        match self.way {
            Way::Gateway => format!("http://{}", self.host),
            Way::Loopback(address, Inside::Here) => format!("http://{address}"),
            Way::Loopback(address, Inside::DockerHost) => {
                format!("http://host.docker.internal:{}", address.port())
            }
        }
    }

    /// What a policy must allow so that it can be reached.
    pub(super) fn rule(&self) -> Option<String> {
        match self.way {
            Way::Gateway => Some(format!("{}:80", self.host)),
            Way::Loopback(_, Inside::Here) => None,
            Way::Loopback(address, Inside::DockerHost) => Some(format!("localhost:{}", address.port())),
        }
    }

    /// Whether calls would be served.
    pub(crate) async fn health(&self) -> io::Result<()> {
        match self.way {
            Way::Gateway => check_health(self.entrance.open(&self.host).await?).await,
            Way::Loopback(address, _) => check_health(TcpStream::connect(address).await?).await,
        }
    }

    /// Whether the service takes the credential.
    pub(crate) async fn verify(&self) -> Result<(), VerifyError> {
        self.entrance.verify(&self.host).await
    }
}
