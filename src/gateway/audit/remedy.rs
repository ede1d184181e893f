//! The configuration change that would allow a request.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::network::{Denial, PolicyLine, PolicyRule};

/// What would allow a request, when that is not a line with its host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuditRemedy {
    /// This line in `sandbox.network.allowed`, with a method or path.
    Line(String),
    /// An allowlist instead of a policy that denies everything.
    Allowlist,
    /// Inspection of its host.
    Inspection,
    /// Removal of this line from `sandbox.network.denied`.
    Without(String),
    /// Permission for this address.
    Address(IpAddr),
    /// Nothing: no policy allows it.
    Never,
}

impl AuditRemedy {
    /// What would allow a denied request.
    pub(in crate::gateway) fn for_denied(denial: &Denial) -> Option<Self> {
        match denial {
            Denial::NotListed | Denial::Port { .. } => None,
            Denial::Request { wanted, .. } => Some(Self::Line(wanted.clone())),
            Denial::Mode(_) => Some(Self::Allowlist),
            Denial::Line(line) => Some(Self::Without(line.to_string())),
            Denial::NotInspected(_) => Some(Self::Inspection),
            Denial::Address { address, class, .. } if class.can_be_allowed() => Some(Self::Address(*address)),
            Denial::Address { .. }
            | Denial::BareAddress
            | Denial::Mismatch { .. }
            | Denial::Injected(_)
            | Denial::Secret { .. }
            | Denial::Invalid(_) => Some(Self::Never),
        }
    }

    /// What an allowed request needed.
    pub(in crate::gateway) fn for_allowed(line: &PolicyLine) -> Option<Self> {
        let rule = PolicyRule::parse(&line.text).ok()?;
        (!rule.is_host_only()).then(|| Self::Line(line.text.clone()))
    }
}
