//! Where credentials come in.

use std::io;

use async_trait::async_trait;

use super::stream::ByteStream;
use crate::network::HostName;

/// Answers for hosts whose credential the gateway adds. Such a host is never tunnelled: its requests come here as plain
/// HTTP/1.1, so that a key of the sandbox's own cannot ride along.
#[async_trait]
pub trait CredentialInjector: Send + Sync {
    /// Whether the credential of this host is added.
    fn injects(&self, host: &HostName) -> bool;

    /// Opens a connection that takes requests to the host as HTTP/1.1, one after another.
    async fn open(&self, host: &HostName) -> io::Result<Box<dyn ByteStream>>;
}
