//! What something needs in order to pass.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::network::{Denial, PolicyLine, PolicyRule};

/// What something needs in order to pass, where that is not a line with its host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// This line of `sandbox.network.allowed`, which is about methods or paths.
    Line(String),
    /// An allowlist in place of a policy that denies everything.
    Allowlist,
    /// That its host is inspected.
    Inspection,
    /// That this line of `sandbox.network.denied` is not there.
    Without(String),
    /// That this address may be reached.
    Address(IpAddr),
    /// It never passes, whatever the policy says.
    Never,
}

impl Needs {
    /// What was denied needs.
    pub(in crate::gateway) fn of_denied(denial: &Denial) -> Option<Self> {
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
            | Denial::Invalid(_) => Some(Self::Never),
        }
    }

    /// What was allowed by a line needed.
    pub(in crate::gateway) fn of_allowed(line: &PolicyLine) -> Option<Self> {
        let rule = PolicyRule::parse(line.text()).ok()?;
        (!rule.is_host_only()).then(|| Self::Line(line.text().to_owned()))
    }
}
