//! What a seal consists of, as a value.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use super::super::proxy;
use super::SealError;
use super::holder_connection::MAX_LISTENERS;
use crate::gateway::{Gateway, ListenerProtocol};
use crate::guest::holder_protocol::{HolderRequest, ListenerTransport};
use crate::network::firewall::SEALED;
use crate::network::{Policy, PolicyMode};
use crate::text::counted;

const DNS: u16 = 53;

/// How the network of a sandbox is sealed under a policy. Its `Display` shows the commands that would set it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealPlan {
    pub(super) policy: Policy,
    /// The listening sockets of the gateway, and the protocol that each serves.
    listeners: Vec<(Listener, ListenerProtocol)>,
}

type Listener = (ListenerTransport, SocketAddr);

impl SealPlan {
    /// The plan for a policy; `None` if the policy restricts nothing.
    pub fn new(policy: &Policy) -> Result<Option<Self>, SealError> {
        let restricts = match policy.mode {
            PolicyMode::AllowAll => policy.restricts(),
            PolicyMode::Deny | PolicyMode::Allowlist | PolicyMode::Record => true,
        };
        let listeners = listeners(policy);
        match listeners.len() {
            _ if !restricts => Ok(None),
            count if count > MAX_LISTENERS => Err(SealError::TooManyPorts(count)),
            _ => Ok(Some(Self {
                policy: policy.clone(),
                listeners,
            })),
        }
    }

    /// The request to the holder to pass on its listening sockets.
    pub(super) fn listeners_request(&self) -> HolderRequest {
        HolderRequest::Listen {
            listeners: self.listeners.iter().map(|(listener, _)| *listener).collect(),
        }
    }

    /// The listening sockets of the gateway, in the order of the request.
    pub(super) fn listeners(&self) -> Vec<(ListenerTransport, ListenerProtocol)> {
        let listeners = self.listeners.iter();
        listeners
            .map(|((transport, _), protocol)| (*transport, *protocol))
            .collect()
    }

    /// Lets the gateway serve the sockets of the holder.
    pub(super) fn open(&self, gateway: &Gateway, listeners: Vec<OwnedFd>) -> Result<(), SealError> {
        let (received, expected) = (listeners.len(), self.listeners.len());
        if received != expected {
            let reason = format!(
                "it passed on {} instead of {expected}",
                counted(received, "listener")
            );
            return Err(SealError::Failed(reason));
        }
        for (((transport, _), protocol), socket) in self.listeners.iter().zip(listeners) {
            match transport {
                ListenerTransport::Tcp => gateway.open(*protocol, socket.into()),
                ListenerTransport::Udp => gateway.open_dns(socket.into()),
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
        for ((transport, address), protocol) in &self.listeners {
            writeln!(f, "{transport} {address} # {protocol}")?;
        }
        Ok(())
    }
}

/// DNS, the proxy, and all ports that the policy mentions.
fn listeners(policy: &Policy) -> Vec<(Listener, ListenerProtocol)> {
    let at = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let own = [
        ((ListenerTransport::Udp, at(DNS)), ListenerProtocol::Dns),
        ((ListenerTransport::Tcp, at(DNS)), ListenerProtocol::Dns),
        (
            (ListenerTransport::Tcp, proxy::ADDRESS.into()),
            ListenerProtocol::Proxy,
        ),
    ];
    let named = policy
        .ports()
        .into_iter()
        .filter(|port| ![DNS, proxy::ADDRESS.port()].contains(port));
    let named = named.map(|port| {
        let protocol = match port {
            80 => ListenerProtocol::Http { port },
            443 => ListenerProtocol::Tls { port },
            port => ListenerProtocol::Tcp { port },
        };
        ((ListenerTransport::Tcp, at(port)), protocol)
    });
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
    fn every_policy_that_restricts_or_inspects_is_sealed(#[case] policy: Policy, #[case] sealed: bool) {
        assert_eq!(SealPlan::new(&policy).unwrap().is_some(), sealed);
    }

    #[test]
    fn a_plan_is_displayed_as_commands() {
        let policy = Policy::allowlist(rules(["a.example", "db.example:5432", "dns.example:53"]));
        let plan = SealPlan::new(&policy).unwrap().unwrap();
        let expected = format!(
            "# every IPv4 address is the sandbox's own, and there is no other interface\n\
             ip route add local 0.0.0.0/0 dev lo\n# iptables-restore and ip6tables-restore\n{SEALED}\
             # the gateway listens\nudp 0.0.0.0:53 # DNS\ntcp 0.0.0.0:53 # DNS\ntcp 127.0.0.1:3128 # the proxy\n\
             tcp 0.0.0.0:80 # HTTP on port 80\ntcp 0.0.0.0:443 # TLS on port 443\n\
             tcp 0.0.0.0:5432 # TCP on port 5432\n"
        );
        assert_eq!(plan.to_string(), expected);
    }

    #[test]
    fn a_policy_with_too_many_ports_is_rejected() {
        let rules = (1..400).map(|port| PolicyRule::parse(&format!("a.example:{port}")).unwrap());
        let refused = SealPlan::new(&Policy::allowlist(rules));
        assert!(matches!(refused, Err(SealError::TooManyPorts(_))), "{refused:?}");
    }
}
