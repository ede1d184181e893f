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
const TIMED_OUT: io::ErrorKind = io::ErrorKind::TimedOut;

/// A host could not be connected to.
#[derive(Debug, Error)]
pub(super) enum DialError {
    /// All its addresses are forbidden.
    #[error(transparent)]
    Denied(Denial),
    /// It cannot be resolved or reached, or has an untrusted certificate.
    #[error("{0}")]
    Failed(String),
}

impl DialError {
    pub(super) fn unreachable(host: &RequestHost, why: impl Display) -> Self {
        Self::Failed(format!("cannot connect to {host}: {why}"))
    }
}

impl GatewayCore {
    /// Resolves the host of a permit and connects to it.
    pub(super) async fn dial(&self, permit: &Permit) -> Result<TcpStream, DialError> {
        let PolicyRequest { host, port, .. } = permit.request();
        let connecting = async {
            let addresses = self.allowed_addresses(host).await?;
            let connected = connect(&addresses, *port).await;
            connected.map_err(|error| DialError::unreachable(host, error))
        };
        let connected = timeout(self.setup.limits.connect_timeout, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(DialError::unreachable(host, TIMED_OUT)));
        if let Err(error) = &connected {
            permit.not_connected(error);
        }
        connected
    }

    async fn allowed_addresses(&self, host: &RequestHost) -> Result<Vec<IpAddr>, DialError> {
        let resolved = match host {
            RequestHost::Address(address) => vec![*address],
            RequestHost::Name(name) => {
                let resolved = self.setup.resolver.resolve(name).await;
                resolved.map_err(|error| {
                    let why = format!("cannot resolve the name: {error}");
                    DialError::unreachable(host, why)
                })?
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
            None => Err(DialError::unreachable(host, "the name has no address")),
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
            connected.unwrap_or_else(|_| Err(TIMED_OUT.into()))
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;

    use super::*;
    use crate::gateway::audit::{AuditProtocol, AuditRecord, AuditVerdict, NoAudit};
    use crate::gateway::{AddressGuard, Gateway, GatewaySetup, Resolver};
    use crate::network::{HostName, Policy};

    struct FailingResolver;

    #[async_trait]
    impl Resolver for FailingResolver {
        async fn resolve(&self, _: &HostName) -> io::Result<Vec<IpAddr>> {
            Err(io::Error::other("no such name"))
        }
    }

    async fn dial_error(host: &str, port: u16) -> String {
        let gateway = Gateway::new(GatewaySetup {
            resolver: Arc::new(FailingResolver),
            guard: AddressGuard::dangerously_opening(["127.0.0.0/8".parse().unwrap()]),
            ..GatewaySetup::new(Policy::allow_all(), Arc::new(NoAudit))
        });
        let request = PolicyRequest::opaque(host.parse().unwrap(), port);
        let permit = gateway.core.admit(AuditProtocol::Tcp, request).unwrap();
        gateway.core.dial(&permit).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_connection_that_failed_is_recorded_with_the_reason() {
        let records: Arc<Mutex<Vec<AuditRecord>>> = Arc::default();
        let gateway = Gateway::new(GatewaySetup {
            resolver: Arc::new(FailingResolver),
            ..GatewaySetup::new(Policy::allow_all(), records.clone())
        });
        let request = PolicyRequest::opaque("a.example".parse().unwrap(), 80);
        let permit = gateway.core.admit(AuditProtocol::Tcp, request).unwrap();
        let error = gateway.core.dial(&permit).await.unwrap_err();
        drop(permit);
        let records = records.lock().unwrap();
        assert_eq!(records[0].verdict, AuditVerdict::Allowed);
        assert_eq!(records[0].failed, Some(error.to_string()));
    }

    #[tokio::test]
    async fn an_error_names_the_host_and_the_cause() {
        assert_eq!(
            dial_error("a.example", 80).await,
            "cannot connect to a.example: cannot resolve the name: no such name"
        );
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = closed.local_addr().unwrap().port();
        drop(closed);
        let refused = dial_error("127.0.0.1", port).await;
        assert!(
            refused.starts_with("cannot connect to 127.0.0.1: Connection refused"),
            "{refused}"
        );
    }
}
