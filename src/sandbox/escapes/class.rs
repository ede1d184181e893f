//! The kinds of attacks.

use std::fmt;

use serde::Serialize;

/// The kinds of attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Names that are not allowed, over HTTP and TLS.
    Names,
    /// Plain addresses, however they are written.
    Addresses,
    /// The explicit proxy, and going around it.
    Proxy,
    /// DNS, asked of anybody.
    Dns,
    /// Protocols that are neither HTTP nor TLS nor DNS.
    Protocols,
    /// This machine, its neighbours and its cloud.
    Places,
    /// Allowed names that lead elsewhere.
    Rebinding,
    /// Requests that name two hosts, or none.
    Disagreement,
    /// Names that look like allowed ones.
    Matching,
    /// What takes a privilege.
    Privileges,
    /// What is left afterwards.
    Leftovers,
}

impl Class {
    /// By what attacks of this kind are held.
    #[must_use]
    pub fn held_by(self) -> &'static str {
        match self {
            Self::Names => "the gateway passes on allowed names alone",
            Self::Addresses => "every address is the sandbox's own: there is no route out",
            Self::Proxy => "the proxy serves whoever has the run's phantom, by the same policy",
            Self::Dns => "every DNS server is the gateway, which answers for allowed names and asks nobody",
            Self::Protocols => "nobody listens but the gateway, and loopback is the only interface",
            Self::Places => {
                "this machine is not on the sandbox's network, and no address may be asked for by number"
            }
            Self::Rebinding => "addresses are checked when the gateway connects",
            Self::Disagreement => "the gateway refuses what is not clear",
            Self::Matching => "names are compared whole, label by label",
            Self::Privileges => "no capability, no way to gain one, and the system calls that are left",
            Self::Leftovers => "closing removes all that belongs to a sandbox",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Names => "names",
            Self::Addresses => "addresses",
            Self::Proxy => "proxy",
            Self::Dns => "dns",
            Self::Protocols => "protocols",
            Self::Places => "places",
            Self::Rebinding => "rebinding",
            Self::Disagreement => "disagreement",
            Self::Matching => "matching",
            Self::Privileges => "privileges",
            Self::Leftovers => "leftovers",
        })
    }
}
