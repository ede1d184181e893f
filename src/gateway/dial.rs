//! Connects to the host of a permit. The address that is checked is the address that is connected to.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::permit::Permit;
use super::shared::GatewayCore;
use crate::network::{Denial, PolicyRequest, RequestHost};

/// Timeout of each address but the last.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// A host could not be connected to.
#[derive(Debug, Error)]
pub(super) enum DialError {
    /// All its addresses are forbidden.
    #[error(transparent)]
    Denied(Denial),
    /// It does not exist, cannot be reached, or has an untrusted certificate.
    #[error("{0}")]
    Failed(String),
}

impl DialError {
    pub(super) fn unreachable(host: impl Display) -> Self {
        Self::Failed(format!("cannot connect to {host}"))
    }
}

impl GatewayCore {
    /// Resolves the host of a permit and connects to it.
    pub(super) async fn dial(&self, permit: &Permit) -> Result<TcpStream, DialError> {
        let PolicyRequest { host, port, .. } = permit.request();
        let connecting = async {
            let addresses = self.allowed_addresses(host).await?;
            let connected = connect(&addresses, *port).await;
            connected.map_err(|_| DialError::unreachable(host))
        };
        let connected = timeout(self.setup.limits.connect_timeout, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(DialError::unreachable(host)));
        if let Err(DialError::Denied(denial)) = &connected {
            permit.revoke(denial.clone());
        }
        connected
    }

    async fn allowed_addresses(&self, host: &RequestHost) -> Result<Vec<IpAddr>, DialError> {
        let resolved = match host {
            RequestHost::Address(address) => vec![*address],
            RequestHost::Name(name) => {
                let resolved = self.setup.resolver.resolve(name).await;
                resolved.map_err(|_| DialError::unreachable(name))?
            }
        };
        let mut allowed = Vec::new();
        let mut denial = None;
        for address in resolved {
            match self.setup.guard.refusal(address) {
                None => allowed.push(address),
                Some(class) => {
                    let name = host.to_string();
                    denial.get_or_insert(Denial::Address { name, address, class });
                }
            }
        }
        match denial {
            _ if !allowed.is_empty() => Ok(allowed),
            Some(denial) => Err(DialError::Denied(denial)),
            None => Err(DialError::Failed(format!("the host {host} does not exist"))),
        }
    }
}

/// Tries one address after another.
async fn connect(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (index, address) in addresses.iter().enumerate() {
        let connecting = TcpStream::connect(SocketAddr::new(*address, port));
        let connected = if index + 1 < addresses.len() {
            let connected = timeout(ADDRESS_TIMEOUT, connecting).await;
            connected.map_err(io::Error::from).flatten()
        } else {
            connecting.await
        };
        match connected {
            Ok(stream) => {
                // Without it small messages are delayed.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
