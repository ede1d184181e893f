//! What a seal is made of: decided here, made elsewhere.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use super::super::proxy;
use super::SealError;
use super::link::MOST_FILES;
use crate::gateway::{Gateway, ListenerProtocol};
use crate::guest::holder_protocol::{HolderRequest, Transport};
use crate::network::firewall::SEALED;
use crate::network::{Policy, PolicyMode};

const DNS: u16 = 53;

/// How a sandbox's network is sealed under a policy. It prints as what is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealPlan {
    policy: Policy,
    openings: Vec<Opening>,
}

/// A door of the gateway, and the listener it is opened at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opening {
    listener: (Transport, SocketAddr),
    door: ListenerProtocol,
}

impl SealPlan {
    /// The plan for a policy; `None` where it allows everything, so that there is nothing to seal.
    pub fn of(policy: &Policy) -> Result<Option<Self>, SealError> {
        let restricts = match policy.mode() {
            PolicyMode::AllowAll => policy.restricts(),
            PolicyMode::Deny | PolicyMode::Allowlist | PolicyMode::Record => true,
        };
        let openings = openings(policy);
        match openings.len() {
            _ if !restricts => Ok(None),
            count if count > MOST_FILES => Err(SealError::TooManyPorts(count)),
            _ => Ok(Some(Self {
                policy: policy.clone(),
                openings,
            })),
        }
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What the holder is told to do first.
    pub(super) fn walls() -> HolderRequest {
        HolderRequest::Seal {
            firewall: SEALED.to_string(),
        }
    }

    /// What it is told to hand over then.
    pub(super) fn listeners(&self) -> HolderRequest {
        HolderRequest::Listen {
            listeners: self.openings.iter().map(|opening| opening.listener).collect(),
        }
    }

    /// Opens the gateway's doors at the listeners that the holder handed over.
    pub(super) fn open(&self, gateway: &Gateway, listeners: Vec<OwnedFd>) -> Result<(), SealError> {
        let (came, wanted) = (listeners.len(), self.openings.len());
        if came != wanted {
            return Err(SealError::Failed(format!("{came} listeners came, not {wanted}")));
        }
        for (opening, listener) in self.openings.iter().zip(listeners) {
            match opening.listener.0 {
                Transport::Tcp => gateway.open(opening.door, listener.into()),
                Transport::Udp => gateway.open_dns(listener.into()),
            }
            .map_err(SealError::Gateway)?;
        }
        Ok(())
    }
}

impl fmt::Display for SealPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# every IPv4 address is the sandbox's own, and there is no other interface"
        )?;
        writeln!(f, "ip route add local 0.0.0.0/0 dev lo")?;
        writeln!(f, "# iptables-restore and ip6tables-restore")?;
        write!(f, "{SEALED}")?;
        writeln!(f, "# the gateway listens")?;
        for Opening { listener, door } in &self.openings {
            let (transport, address) = listener;
            writeln!(f, "{transport} {address} # {door}")?;
        }
        Ok(())
    }
}

/// DNS, the proxy, and the ports that something may be reached on.
fn openings(policy: &Policy) -> Vec<Opening> {
    let any = Ipv4Addr::UNSPECIFIED;
    let tcp = |address: SocketAddr, door| Opening {
        listener: (Transport::Tcp, address),
        door,
    };
    let named = policy
        .ports()
        .into_iter()
        .filter(|port| ![DNS, proxy::ADDRESS.port()].contains(port));
    let named = named.map(|port| {
        let door = match port {
            80 => ListenerProtocol::Http { port },
            443 => ListenerProtocol::Tls { port },
            port => ListenerProtocol::Tcp { port },
        };
        tcp((any, port).into(), door)
    });
    let own = [
        Opening {
            listener: (Transport::Udp, (any, DNS).into()),
            door: ListenerProtocol::Dns,
        },
        tcp((any, DNS).into(), ListenerProtocol::Dns),
        tcp(proxy::ADDRESS.into(), ListenerProtocol::Proxy),
    ];
    own.into_iter().chain(named).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::network::{HostPattern, PolicyRule};

    fn rules<const N: usize>(lines: [&str; N]) -> [PolicyRule; N] {
        lines.map(|line| PolicyRule::parse(line).unwrap())
    }

    #[rstest]
    #[case::nothing_is_restricted(Policy::allow_all(), false)]
    #[case::something_is(Policy::allow_all().denying(rules(["a.example"])), true)]
    #[case::something_is_inspected(Policy::allow_all().inspecting([HostPattern::parse("a.example").unwrap()]), true)]
    #[case::everything_is(Policy::deny(), true)]
    #[case::names_are_listed(Policy::allowlist([]), true)]
    #[case::names_are_written_down(Policy::record(), true)]
    fn whatever_restricts_or_watches_is_sealed(#[case] policy: Policy, #[case] sealed: bool) {
        assert_eq!(SealPlan::of(&policy).unwrap().is_some(), sealed);
    }

    #[test]
    fn a_plan_prints_as_what_is_set_up() {
        let policy = Policy::allowlist(rules(["a.example", "db.example:5432", "dns.example:53"]));
        let plan = SealPlan::of(&policy).unwrap().unwrap();
        let expected = format!(
            "# every IPv4 address is the sandbox's own, and there is no other interface\n\
             ip route add local 0.0.0.0/0 dev lo\n# iptables-restore and ip6tables-restore\n{SEALED}\
             # the gateway listens\nudp 0.0.0.0:53 # DNS\ntcp 0.0.0.0:53 # DNS\ntcp 127.0.0.1:3128 # the proxy\n\
             tcp 0.0.0.0:80 # HTTP at port 80\ntcp 0.0.0.0:443 # TLS at port 443\n\
             tcp 0.0.0.0:5432 # TCP at port 5432\n"
        );
        assert_eq!(plan.to_string(), expected);
    }

    #[test]
    fn a_policy_of_too_many_ports_is_refused() {
        let rules = (1..400).map(|port| PolicyRule::parse(&format!("a.example:{port}")).unwrap());
        let refused = SealPlan::of(&Policy::allowlist(rules));
        assert!(matches!(refused, Err(SealError::TooManyPorts(_))), "{refused:?}");
    }
}
