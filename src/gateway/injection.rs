//! The seam between the gateway and the broker.

use std::io;

use async_trait::async_trait;

use super::stream::ByteStream;
use crate::network::HostName;

/// Handles the hosts whose credential the gateway adds. Such a host is never tunnelled: its requests arrive here as plain
/// HTTP/1.1, so that a credential of the sandbox can be detected.
#[async_trait]
pub trait CredentialInjector: Send + Sync {
    /// Whether the gateway adds the credential of this host.
    fn injects(&self, host: &HostName) -> bool;

    /// Opens a connection that accepts HTTP/1.1 requests to the host.
    async fn open(&self, host: &HostName) -> io::Result<Box<dyn ByteStream>>;
}
