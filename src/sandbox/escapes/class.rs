//! The classes of attacks.

use std::fmt;

use serde::Serialize;

/// The classes of attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttackClass {
    /// Denied names, over HTTP and TLS.
    Names,
    /// IP addresses, in all notations.
    Addresses,
    /// The explicit proxy, and connections that bypass it.
    Proxy,
    /// DNS queries to any server.
    Dns,
    /// Protocols other than HTTP, TLS and DNS.
    Protocols,
    /// The host, its private networks and its cloud's metadata services.
    Places,
    /// Allowed names that resolve to forbidden addresses.
    Rebinding,
    /// Requests that name two hosts, or none.
    Disagreement,
    /// Names that resemble allowed ones.
    Matching,
    /// Actions that need a privilege.
    Privileges,
    /// What remains after the sandbox was closed.
    Leftovers,
}

impl AttackClass {
    /// What defends a sandbox against attacks of this class.
    #[must_use]
    pub fn defence(self) -> &'static str {
        match self {
            Self::Names => "the gateway forwards allowed names only",
            Self::Addresses => "every address is local to the sandbox: there is no route out",
            Self::Proxy => "the proxy requires the run's phantom and applies the same policy",
            Self::Dns => "every DNS server is the gateway, which resolves allowed names only",
            Self::Protocols => "only the gateway listens, and loopback is the only interface",
            Self::Places => {
                "the host is not on the sandbox's network, and requests for IP addresses are denied"
            }
            Self::Rebinding => "the gateway checks addresses when it connects",
            Self::Disagreement => "the gateway refuses ambiguous requests",
            Self::Matching => "names are compared as a whole, label by label",
            Self::Privileges => "no capabilities, no way to gain one, and a system call filter",
            Self::Leftovers => "closing a sandbox removes everything that belongs to it",
        }
    }
}

impl fmt::Display for AttackClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_ascii_lowercase())
    }
}
