//! The classes of attacks.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// The classes of attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AttackClass {
    /// Denied names, over HTTP and TLS.
    Names,
    /// Redirects from an allowed to a denied name.
    Redirects,
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
    /// The credential behind a phantom.
    Credentials,
    /// The gateway itself, and the gateways of other runs.
    Gateways,
    /// Actions that need a privilege.
    Privileges,
    /// Hooks, settings and names in the commits that come back.
    HandBack,
    /// Sandboxes whose creation was interrupted.
    Interruption,
    /// Memory, processes, disk, and processes that outlive their time limit.
    Resources,
    /// The end of the gateway during a run.
    GatewayEnd,
    /// What remains after the sandbox was closed.
    Leftovers,
    /// What an agent leaves behind so that a failing command of the task passes.
    Evidence,
    /// Sockets and system calls that a network namespace does not cover.
    Sockets,
    /// Calls to a model that make the service do more than answer.
    ModelCalls,
    /// Calls that cost more than the budget.
    Budgets,
    /// Records that hide others in the audit log.
    Audit,
    /// Proofs that would hold for an open sandbox as well.
    Proofs,
    /// Control characters that a terminal would obey.
    Terminals,
    /// Other runs on the same host.
    Neighbours,
}

impl AttackClass {
    /// All classes.
    pub const ALL: [Self; 26] = [
        Self::Names,
        Self::Redirects,
        Self::Addresses,
        Self::Proxy,
        Self::Dns,
        Self::Protocols,
        Self::Places,
        Self::Rebinding,
        Self::Disagreement,
        Self::Matching,
        Self::Credentials,
        Self::Gateways,
        Self::Privileges,
        Self::HandBack,
        Self::Interruption,
        Self::Resources,
        Self::GatewayEnd,
        Self::Leftovers,
        Self::Evidence,
        Self::Sockets,
        Self::ModelCalls,
        Self::Budgets,
        Self::Audit,
        Self::Proofs,
        Self::Terminals,
        Self::Neighbours,
    ];

    /// What defends a sandbox against attacks of this class.
    #[must_use]
    pub fn defence(self) -> &'static str {
        match self {
            Self::Names | Self::Redirects => "the gateway forwards allowed names only",
            Self::Addresses => "every address is local to the sandbox: there is no route out",
            Self::Proxy => "the proxy applies the same policy",
            Self::Dns => "every DNS server is the gateway, which resolves allowed names only",
            Self::Protocols => "only the gateway listens, and loopback is the only interface",
            Self::Places => {
                "the host is not on the sandbox's network, and requests for IP addresses are denied"
            }
            Self::Rebinding => "the gateway checks addresses when it connects",
            Self::Disagreement => "the gateway refuses ambiguous requests",
            Self::Matching => "names are compared as a whole, label by label",
            Self::Credentials => "the broker on the host adds credentials, and sandboxes hold a phantom",
            Self::Gateways => "the proxy requires the run's phantom",
            Self::Privileges => "no capabilities, no way to gain one, and a system call filter",
            Self::HandBack => "commits are checked on the host before they are imported",
            Self::Interruption => "no command runs before the network was proven to be sealed",
            Self::Resources => "the engine limits a container, and ralph ends its processes",
            Self::GatewayEnd => "without the gateway nothing listens, and there is no other way out",
            Self::Leftovers => "closing a sandbox removes everything that belongs to it",
            Self::Evidence => "evidence does not use what the agent left behind",
            Self::Sockets => "the seccomp profile allows sockets by family and protocol",
            Self::ModelCalls => "the broker forwards known calls only",
            Self::Budgets => "the most that a call can cost is reserved before it is forwarded",
            Self::Audit => "repeated records are counted",
            Self::Proofs => {
                "the listeners were reached from the host before, so their silence means something"
            }
            Self::Terminals => "control characters are written out",
            Self::Neighbours => "every run has a sandbox, a network and a directory of its own",
        }
    }

    /// The suite of this project that tries attacks of this class, if `ralph selftest --escapes` tries none with a provider.
    pub(super) fn suite(self) -> &'static str {
        match self {
            Self::Credentials | Self::ModelCalls | Self::Budgets => "tests/broker",
            Self::Interruption | Self::GatewayEnd | Self::Resources | Self::Neighbours => "tests/docker",
            Self::Evidence => "tests/verdicts",
            Self::Audit | Self::Redirects | Self::Disagreement | Self::Gateways => "tests/gateway",
            Self::HandBack | Self::Terminals => "tests/it",
            _ => "tests/escapes",
        }
    }
}

impl fmt::Display for AttackClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !text.is_empty() {
                text.push('-');
            }
            text.push(letter.to_ascii_lowercase());
        }
        f.pad(&text)
    }
}
