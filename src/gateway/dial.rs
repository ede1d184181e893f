//! From a permit to a connection. The address that is checked is the address that is connected to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::guard::AddressGuard;
use super::permit::Permit;
use super::resolve::Resolver;
use crate::network::{Denial, RequestHost};

/// Resolves the host of a permit and connects to it.
pub(super) async fn dial(
    resolver: &dyn Resolver,
    guard: &AddressGuard,
    limit: Duration,
    permit: &Permit,
) -> Result<TcpStream, DialError> {
    let found = async {
        let addresses = checked_addresses(resolver, guard, permit).await?;
        connect(&addresses, permit.request.port).await
    };
    let connected = timeout(limit, found).await.unwrap_or_else(|_| {
        let host = permit.request.host.to_string();
        Err(DialError::Unreachable {
            host,
            source: io::ErrorKind::TimedOut.into(),
        })
    });
    if let Err(DialError::Denied(denial)) = &connected {
        permit.refuse(denial.clone());
    }
    connected
}

/// Why a host was not reached.
#[derive(Debug, Error)]
pub(super) enum DialError {
    /// All its addresses are ones that may not be reached.
    #[error(transparent)]
    Denied(Denial),
    /// There is no such name.
    #[error("there is no host {0}")]
    NoSuchName(String),
    /// It does not answer.
    #[error("{host} cannot be reached")]
    Unreachable {
        /// The host.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// It answers, and does not prove that it is the host.
    #[error("{host} does not prove to be that host: {source}")]
    Untrusted {
        /// The host.
        host: String,
        /// Why.
        source: io::Error,
    },
}

async fn checked_addresses(
    resolver: &dyn Resolver,
    guard: &AddressGuard,
    permit: &Permit,
) -> Result<Vec<IpAddr>, DialError> {
    let host = &permit.request.host;
    let found = match host {
        RequestHost::Address(address) => vec![*address],
        RequestHost::Name(name) => resolver.resolve(name).await.map_err(|source| {
            let host = host.to_string();
            DialError::Unreachable { host, source }
        })?,
    };
    let (refused, open): (Vec<_>, Vec<_>) = found
        .into_iter()
        .map(|address| (address, guard.refusal(address)))
        .partition(|(_, class)| class.is_some());
    match (open.is_empty(), refused.first()) {
        (true, Some((address, Some(class)))) => Err(DialError::Denied(Denial::Address {
            name: host.to_string(),
            address: *address,
            class: *class,
        })),
        (true, _) => Err(DialError::NoSuchName(host.to_string())),
        (false, _) => Ok(open.into_iter().map(|(address, _)| address).collect()),
    }
}

/// How long one of several addresses may take.
const EACH: Duration = Duration::from_secs(3);

async fn connect(addresses: &[IpAddr], port: u16) -> Result<TcpStream, DialError> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (index, address) in addresses.iter().enumerate() {
        let connecting = TcpStream::connect(SocketAddr::new(*address, port));
        let connected = if index + 1 < addresses.len() {
            timeout(EACH, connecting)
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        } else {
            connecting.await
        };
        match connected {
            Ok(stream) => {
                // Small messages are not held back; where that cannot be had, they come a little later.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    let host = addresses.first().map_or(String::new(), ToString::to_string);
    Err(DialError::Unreachable { host, source: last })
}
