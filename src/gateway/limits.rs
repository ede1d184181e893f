//! Limits of the resources that one sandbox can use in the gateway.

use std::time::Duration;

/// Limits of the resources that one sandbox can use in the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Concurrent connections. A new one closes the connection that was idle for longest.
    pub connections: usize,
    /// The longest head of an HTTP message, in bytes.
    pub head_bytes: usize,
    /// Timeout for receiving a client hello, an HTTP head or a DNS query.
    pub hello: Duration,
    /// Timeout for resolving a name and connecting to its host.
    pub connect: Duration,
    /// Time without traffic after which a connection is closed.
    pub idle: Duration,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head_bytes: 64 * 1024,
            hello: Duration::from_secs(5),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(3600),
        }
    }
}
