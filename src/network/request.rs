//! What a policy is asked about.

use super::host::Host;

/// Something that wants to leave a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub host: Host,
    /// To which port.
    pub port: u16,
    /// What is known of the content.
    pub seen: Seen,
}

/// What is known of the content of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: it is encrypted, or no HTTP.
    Nothing,
    /// One HTTP request.
    Http {
        /// Its method, as it was sent.
        method: String,
        /// Its path and query, as they were sent.
        path: String,
    },
}

impl Seen {
    /// One HTTP request.
    #[must_use]
    pub fn http(method: &str, path: &str) -> Self {
        Self::Http {
            method: method.to_owned(),
            path: path.to_owned(),
        }
    }
}

impl Request {
    /// A connection whose content cannot be seen.
    #[must_use]
    pub fn opaque(host: Host, port: u16) -> Self {
        Self {
            host,
            port,
            seen: Seen::Nothing,
        }
    }
}
