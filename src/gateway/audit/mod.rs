//! What a sandbox asked for, and what it was told.

mod log;
mod needs;
mod tally;

use std::fmt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use log::{AuditError, AuditLog};
pub use needs::Needs;
pub use tally::{Asked, Tally};

/// One thing that a sandbox asked for. This is a line of the audit file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When it ended.
    pub at: Timestamp,
    /// How it was asked.
    pub protocol: Protocol,
    /// The name or address; as far as it is known.
    pub host: Option<String>,
    /// The port; a lookup has none.
    pub port: Option<u16>,
    /// What came of it.
    pub verdict: Outcome,
    /// The line that decided, or the reason.
    pub rule: String,
    /// What it needs in order to pass, where that is not a line with its host and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// Bytes that left the sandbox.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

/// How something was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A name was looked up. One that is allowed is written down the first time.
    Dns,
    /// A plain HTTP request.
    Http,
    /// A TLS connection.
    Tls,
    /// A request within a TLS connection that is inspected.
    Https,
    /// Any other connection.
    Tcp,
    /// A request to the explicit proxy.
    Proxy,
}

/// What came of something that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was allowed.
    Allowed,
    /// It was denied.
    Denied,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        })
    }
}

/// Receives what was asked. Called from the connection itself, so it must not wait.
pub trait AuditSink: Send + Sync {
    /// Takes one record.
    fn record(&self, record: Record);
}

/// Writes nothing down.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAudit;

impl AuditSink for NoAudit {
    fn record(&self, _record: Record) {}
}

impl AuditSink for Mutex<Vec<Record>> {
    fn record(&self, record: Record) {
        self.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}
