//! From names to addresses, on the host.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;

use crate::network::HostName;

/// Resolves names for connections that are allowed. A sandbox never sees what it says.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a name; none when there is no such name.
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>>;
}

/// Asks the host's own resolver, as every other program of the host does.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        // The port is not asked about; the function wants one.
        let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}
