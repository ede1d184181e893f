//! The ways from a sandbox to the services of a run.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::gateway::Phantom;
use crate::gateway::broker::{self, Broker, Entrance};
use crate::gateway::meter::Meter;
use crate::network::HostName;

use super::super::error::CliError;
use super::Way;

/// Where a sandbox finds one service.
#[derive(Clone)]
pub(super) struct Spot {
    /// The name that the service has there.
    pub(super) host: HostName,
    /// Its own server on loopback; `None` where a gateway leads to it.
    pub(super) server: Option<(Entrance, SocketAddr)>,
}

impl Spot {
    /// The address, as a sandbox uses it.
    pub(super) fn address(&self) -> String {
        match &self.server {
            None => format!("http://{}", self.host),
            Some((_, address)) => format!("http://{address}"),
        }
    }
}

/// The ways to the services of one run, while they are being made.
pub(super) struct Doors {
    way: Way,
    phantom: Phantom,
    meter: Meter,
    /// Those that the gateway leads to.
    behind_gateway: Vec<broker::Service>,
    /// The servers on loopback.
    loopback: JoinSet<()>,
}

impl Doors {
    pub(super) fn new(way: Way, phantom: Phantom, meter: Meter) -> Self {
        Self {
            way,
            phantom,
            meter,
            behind_gateway: Vec::new(),
            loopback: JoinSet::new(),
        }
    }

    /// Makes a way to a service, and says where the sandbox finds it.
    pub(super) async fn add(&mut self, service: impl Into<broker::Service>) -> Result<Spot, CliError> {
        let service = service.into();
        let host = service.host().clone();
        let server = match self.way {
            Way::Gateway => {
                self.behind_gateway.push(service);
                None
            }
            Way::Loopback => {
                let entrance = self.admit([service])?;
                Some((entrance.clone(), self.listen(entrance, host.clone()).await?))
            }
        };
        Ok(Spot { host, server })
    }

    /// The entrance for a gateway, where there is one, and the servers on loopback, which end with the set.
    pub(super) fn open(mut self) -> Result<(Option<Entrance>, JoinSet<()>), CliError> {
        let behind_gateway = std::mem::take(&mut self.behind_gateway);
        let entrance = match self.way {
            Way::Gateway => Some(self.admit(behind_gateway)?),
            Way::Loopback => None,
        };
        Ok((entrance, self.loopback))
    }

    fn admit(&self, services: impl IntoIterator<Item = broker::Service>) -> Result<Entrance, CliError> {
        let broker = Broker::new(services, Vec::new())?;
        Ok(broker.admit(self.phantom.clone(), self.meter.clone()))
    }

    /// Serves a service on a port of loopback, and says where.
    async fn listen(&mut self, entrance: Entrance, host: HostName) -> Result<SocketAddr, CliError> {
        let failed =
            |error: std::io::Error| CliError::runtime(format!("cannot listen on 127.0.0.1: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.loopback.spawn(async move {
            if let Err(error) = entrance.serve(listener, &host).await {
                tracing::warn!(%error, %host, "the broker serves no more");
            }
        });
        Ok(address)
    }
}
