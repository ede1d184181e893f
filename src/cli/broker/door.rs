//! Where the calls to one model come in, to be looked at.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::gateway::Injection;
use crate::gateway::broker::{Entrance, VerifyError, ask_health};
use crate::network::HostName;

use super::doors::Spot;

/// Where the calls to one model come in.
#[derive(Clone)]
pub(in crate::cli) struct Door {
    entrance: Entrance,
    host: HostName,
    /// Where the model really is.
    pub(in crate::cli) service: String,
    /// The port of loopback that it is at; `None` where a gateway leads to it.
    port: Option<SocketAddr>,
}

impl Door {
    /// The one at this spot; `None` when there is no way to it. `gateway` is the entrance that a gateway leads to.
    pub(super) fn at(spot: &Spot, service: &str, gateway: Option<&Entrance>) -> Option<Self> {
        let (entrance, port) = match &spot.server {
            Some((entrance, port)) => (entrance, Some(*port)),
            None => (gateway?, None),
        };
        Some(Self {
            entrance: entrance.clone(),
            host: spot.host.clone(),
            service: service.to_owned(),
            port,
        })
    }

    /// Whether calls would be served.
    pub(in crate::cli) async fn health(&self) -> io::Result<()> {
        match self.port {
            None => ask_health(self.entrance.open(&self.host).await?).await,
            Some(address) => ask_health(TcpStream::connect(address).await?).await,
        }
    }

    /// Whether the model takes the credential.
    pub(in crate::cli) async fn verify(&self) -> Result<(), VerifyError> {
        self.entrance.verify(&self.host).await
    }
}
