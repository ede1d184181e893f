//! Connects to the host of a permit. The address that is checked is the address that is connected to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::core::GatewayCore;
use super::permit::Permit;
use crate::network::{Denial, RequestHost};

/// Timeout of each address but the last.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// A host could not be connected to.
#[derive(Debug, Error)]
pub(super) enum DialError {
    /// All its addresses are forbidden.
    #[error(transparent)]
    Denied(Denial),
    /// The name does not exist.
    #[error("the host {0} does not exist")]
    NoSuchName(String),
    /// The connection failed.
    #[error("cannot connect to {host}")]
    Unreachable {
        /// The host.
        host: String,
        /// The cause.
        source: io::Error,
    },
    /// The TLS handshake failed, for example because of its certificate.
    #[error("the TLS handshake with {host} failed: {source}")]
    Untrusted {
        /// The host.
        host: String,
        /// The cause.
        source: io::Error,
    },
}

impl GatewayCore {
    /// Resolves the host of a permit and connects to it.
    pub(super) async fn dial(&self, permit: &Permit) -> Result<TcpStream, DialError> {
        let host = permit.request.host.to_string();
        let connecting = async {
            let addresses = self.allowed_addresses(&permit.request.host).await?;
            let connected = connect(&addresses, permit.request.port).await;
            connected.map_err(|source| DialError::Unreachable {
                host: host.clone(),
                source,
            })
        };
        let connected = timeout(self.setup.limits.connect, connecting).await;
        let connected = connected.unwrap_or_else(|_| {
            Err(DialError::Unreachable {
                host: host.clone(),
                source: io::ErrorKind::TimedOut.into(),
            })
        });
        if let Err(DialError::Denied(denial)) = &connected {
            permit.revoke(denial.clone());
        }
        connected
    }

    async fn allowed_addresses(&self, host: &RequestHost) -> Result<Vec<IpAddr>, DialError> {
        let resolved = match host {
            RequestHost::Address(address) => vec![*address],
            RequestHost::Name(name) => self.setup.resolver.resolve(name).await.map_err(|source| {
                let host = host.to_string();
                DialError::Unreachable { host, source }
            })?,
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
            None => Err(DialError::NoSuchName(host.to_string())),
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
            connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
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
