//! The input of a policy decision.

use super::host::RequestHost;

/// A connection or HTTP request that wants to leave a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRequest {
    /// The destination.
    pub host: RequestHost,
    /// The destination port.
    pub port: u16,
    /// What is known about the content.
    pub content: RequestContent,
}

/// What is known about the content of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestContent {
    /// Nothing: it is encrypted, or not HTTP.
    Opaque,
    /// One HTTP request.
    Http {
        /// The method, as sent.
        method: String,
        /// The path and query, as sent.
        path: String,
    },
}

impl RequestContent {
    /// One HTTP request.
    #[must_use]
    pub fn http(method: &str, path: &str) -> Self {
        Self::Http {
            method: method.to_owned(),
            path: path.to_owned(),
        }
    }
}

impl PolicyRequest {
    /// A connection whose content is not known.
    #[must_use]
    pub fn opaque(host: RequestHost, port: u16) -> Self {
        Self {
            host,
            port,
            content: RequestContent::Opaque,
        }
    }
}
