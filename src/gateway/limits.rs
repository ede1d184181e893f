//! Limits of the resources that one sandbox can use in the gateway.

use std::time::Duration;

/// Limits of the resources that one sandbox can use in the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Concurrent connections. A new one closes the connection that was idle for longest.
    pub max_connections: usize,
    /// The longest head of an HTTP message, in bytes.
    pub max_head_bytes: usize,
    /// Timeout for receiving a client hello, an HTTP head or a DNS query.
    pub receive_timeout: Duration,
    /// Timeout for resolving a name and connecting to its host.
    pub connect_timeout: Duration,
    /// Time without traffic after which a connection is closed.
    pub idle_timeout: Duration,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_head_bytes: 64 * 1024,
            receive_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(3600),
        }
    }
}
