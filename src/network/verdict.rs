//! The decision of a policy, and the line it comes from.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use super::address::AddressClass;
use super::host::HostName;

/// A line of a policy and the place where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLine {
    /// The text of the line.
    pub text: String,
    /// Where the line is written, for example `ralph.toml:3:12`. Empty if the line was created by code.
    pub place: String,
}

impl fmt::Display for PolicyLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => write!(f, "`{}`", self.text),
            place => write!(f, "`{}` ({place})", self.text),
        }
    }
}

/// The decision of a policy about one request or name: the line that allows it, or why it is denied.
pub type PolicyVerdict = Result<Arc<PolicyLine>, Denial>;

/// Why a request is denied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// A line denies it.
    #[error("denied by {0}")]
    Line(Arc<PolicyLine>),
    /// The policy denies everything.
    #[error("denied by {0}")]
    Mode(Arc<PolicyLine>),
    /// No line allows the host.
    #[error("host not in policy")]
    NotListed,
    /// The host is allowed on other ports only.
    #[error("port {port} not in policy; {line} does not cover it")]
    Port {
        /// The port of the request.
        port: u16,
        /// A line that allows the host.
        line: Arc<PolicyLine>,
    },
    /// The host is allowed for other methods or paths only.
    #[error("method or path not in policy; {line} does not cover it")]
    Request {
        /// The narrowest line that would allow the request.
        wanted: String,
        /// A line that allows the host.
        line: Arc<PolicyLine>,
    },
    /// A line decides by method or path, which are not visible here.
    #[error("{0} matches on method or path, and this connection is not inspected")]
    NotInspected(Arc<PolicyLine>),
    /// The destination is an IP address.
    #[error("the policy allows host names, not IP addresses")]
    BareAddress,
    /// The name resolves to an address that no sandbox may reach.
    #[error("{name} resolves to {address}: {class}")]
    Address {
        /// The name, or the address itself.
        name: String,
        /// The address.
        address: IpAddr,
        /// The reason that it may not be reached.
        class: AddressClass,
    },
    /// Two parts of one request name different hosts.
    #[error("host mismatch: the connection was allowed for {allowed}, the request names {actual}")]
    Mismatch {
        /// The host that the policy allowed.
        allowed: String,
        /// The host that the request names.
        actual: String,
    },
    /// The gateway adds a credential for this host, so its requests must not be tunnelled.
    #[error(
        "the gateway adds the credential of {0}; send its requests over plain HTTP, not through a tunnel"
    )]
    Injected(HostName),
    /// The request contains the placeholder of a secret that it may not have.
    #[error("the request has the placeholder of the secret `{name}`, which {reason}")]
    Secret {
        /// The variable of the placeholder.
        name: String,
        /// The rule that forbids it.
        reason: &'static str,
    },
    /// The request is malformed, ambiguous, hidden or unauthenticated.
    #[error("{0}")]
    Invalid(&'static str),
}

impl Denial {
    /// The line that the denial comes from, if any.
    #[must_use]
    pub fn line(&self) -> Option<&Arc<PolicyLine>> {
        match self {
            Self::Line(line)
            | Self::Mode(line)
            | Self::Port { line, .. }
            | Self::Request { line, .. }
            | Self::NotInspected(line) => Some(line),
            Self::NotListed
            | Self::BareAddress
            | Self::Address { .. }
            | Self::Mismatch { .. }
            | Self::Injected(_)
            | Self::Secret { .. }
            | Self::Invalid(_) => None,
        }
    }
}
