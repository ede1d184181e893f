//! Resolves names on the host.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;

use crate::network::HostName;

/// Resolves the names of allowed connections. A sandbox never sees the addresses.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a name; empty when it has none. The resolver of the host returns an error then.
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        // The function requires a port, which does not matter.
        let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}
