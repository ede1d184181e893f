//! Which names a sandbox may reach. The policy is one value; each provider compiles it to what it can enforce.

use serde::{Deserialize, Serialize};

/// Which names a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "policy", content = "allowed")]
pub enum Policy {
    /// Nothing at all.
    Deny,
    /// The names listed and nothing else.
    Allowlist(Vec<String>),
    /// Everything.
    AllowAll,
}

impl Policy {
    /// Whether the policy restricts anything, so that a provider without enforcement must say so.
    #[must_use]
    pub fn restricts(&self) -> bool {
        match self {
            Self::Deny | Self::Allowlist(_) => true,
            Self::AllowAll => false,
        }
    }
}
