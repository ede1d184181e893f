//! How much one sandbox may take of the gateway.

use std::time::Duration;

/// How much one sandbox may take of the gateway. All of it is finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. When one more comes, the one that was idle for longest is closed.
    pub connections: usize,
    /// The longest head of an HTTP message, in bytes.
    pub head_bytes: usize,
    /// How long a client may take to say what it wants: a TLS hello, an HTTP head, a DNS query.
    pub hello: Duration,
    /// How long a name may take to be resolved and its host to be reached.
    pub connect: Duration,
    /// How long a connection may be silent.
    pub idle: Duration,
}

impl Default for Limits {
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
