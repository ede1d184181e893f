//! Records the requests of a sandbox and the verdicts of the policy.

mod log;
mod remedy;
mod tally;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::network::{Denial, PolicyLine};

pub use log::{AuditError, AuditLimits, AuditLog};
pub use remedy::AuditRemedy;
pub use tally::{AuditTally, TallyEntry, TallyKey};

/// One request of a sandbox: a line of the audit file, which adds the time of its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuditRecord {
    /// The protocol.
    pub protocol: AuditProtocol,
    /// The host name or address, if known.
    pub host: Option<String>,
    /// The port; `None` for a lookup.
    pub port: Option<u16>,
    /// Whether it was allowed.
    pub verdict: AuditVerdict,
    /// The policy line that decided, or the reason.
    pub rule: String,
    /// What would allow it, when that is not a line with its host and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<AuditRemedy>,
    /// Why there was no connection, although it was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Bytes that the sandbox sent.
    pub sent: u64,
    /// Bytes that the sandbox received.
    pub received: u64,
    /// The number of requests: more than one where a line counts repeats, whose bytes it sums up.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

impl AuditRecord {
    /// The reason in the last record of a full log.
    pub const FULL: &str = "the network audit is full: later requests are not recorded";
    /// The reason in a record that counts denied requests without room of their own.
    pub const OTHERS: &str = "denied requests that the network audit has no room for";

    /// A record without traffic.
    pub(super) fn new(
        protocol: AuditProtocol,
        host: Option<String>,
        port: Option<u16>,
        verdict: Result<&Arc<PolicyLine>, &Denial>,
    ) -> Self {
        let (verdict, rule, needs) = match verdict {
            Ok(line) => (
                AuditVerdict::Allowed,
                line.to_string(),
                AuditRemedy::for_allowed(line),
            ),
            Err(denial) => (
                AuditVerdict::Denied,
                denial.to_string(),
                AuditRemedy::for_denied(denial),
            ),
        };
        Self {
            protocol,
            host,
            port,
            verdict,
            rule,
            needs,
            failed: None,
            sent: 0,
            received: 0,
            count: 1,
        }
    }

    /// Whether it is about requests that have no record of their own.
    fn is_note(&self) -> bool {
        [Self::FULL, Self::OTHERS].contains(&self.rule.as_str())
    }

    /// A record about requests that have none of their own.
    fn unrecorded(reason: &str, count: u64) -> Self {
        Self {
            protocol: AuditProtocol::Tcp,
            host: None,
            port: None,
            verdict: AuditVerdict::Denied,
            rule: reason.to_owned(),
            needs: Some(AuditRemedy::Never),
            failed: None,
            sent: 0,
            received: 0,
            count,
        }
    }
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditProtocol {
    /// A DNS lookup. An allowed name is recorded once.
    Dns,
    /// A plain HTTP request.
    Http,
    /// A TLS connection.
    Tls,
    /// A request in an inspected TLS connection.
    Https,
    /// Any other connection.
    Tcp,
    /// A request to the explicit proxy.
    Proxy,
}

/// The verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditVerdict {
    /// Allowed.
    Allowed,
    /// Denied.
    Denied,
}

impl fmt::Display for AuditVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        })
    }
}

/// Receives audit records. Connections call it directly, so it must not block.
pub trait AuditSink: Send + Sync {
    /// Takes one record.
    fn record(&self, record: AuditRecord);

    /// Whether nothing more may be allowed, because it could not be recorded.
    fn is_closed(&self) -> bool {
        false
    }
}

/// Drops all records.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAudit;

impl AuditSink for NoAudit {
    fn record(&self, _record: AuditRecord) {}
}

impl AuditSink for Mutex<Vec<AuditRecord>> {
    fn record(&self, record: AuditRecord) {
        self.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}
