//! Checks that run inside a sandbox before the agent does, to show that its network is sealed.
//!
//! A missing answer alone proves nothing. So each canary must be reachable from outside first, and the beacon shows that
//! the sandbox's network leads to its own gateway.

mod check;
mod wire;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use self::check::{ProbeCheck, ProbeExpectation, ProbeFailure};
pub use self::wire::{Probe, ProbeResult, ProbeTransport};
use super::host::HostName;
use super::policy::{Policy, PolicyMode};

/// The metadata service of a cloud, where its VMs get credentials.
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// Addresses that are reserved for documentation: no host has them.
const UNUSED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const UNUSED_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// A port without a listener, for protocols other than HTTP.
const ODD_PORT: u16 = 9;
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
const DNS: u16 = 53;

/// The gateway's own name and what it answers there; see [`ProbeExpectation::Beacon`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// A name that no other host can have.
    pub name: String,
    /// The answer: random, different for every gateway.
    pub nonce: String,
}

impl Beacon {
    /// Creates a beacon with a random nonce.
    #[must_use]
    pub fn random() -> Self {
        Self {
            name: "gateway.ralph.invalid".to_owned(),
            nonce: format!("{:016x}", fastrand::u64(..)),
        }
    }

    /// Compares a name with the beacon's.
    #[must_use]
    pub fn compare(&self, name: &HostName) -> BeaconMatch {
        match name.as_str().strip_suffix(&self.name) {
            Some("") => BeaconMatch::Exact,
            Some(labels) if labels.ends_with('.') => BeaconMatch::Below,
            Some(_) | None => BeaconMatch::Other,
        }
    }
}

/// How a name relates to the beacon's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeaconMatch {
    /// It is the beacon's name.
    Exact,
    /// It is below the beacon's name. Checks look up such names to show that they do not exist.
    Below,
    /// It is another name.
    Other,
}

/// A listener on the host that a sandbox must not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A TCP listener.
    Tcp(SocketAddr),
    /// A UDP listener.
    Udp(SocketAddr),
    /// A UDP listener on the DNS port of this address.
    Dns(IpAddr),
}

impl Canary {
    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match *self {
            Self::Tcp(address) | Self::Udp(address) => address,
            Self::Dns(address) => SocketAddr::new(address, DNS),
        }
    }

    /// A URL with which `curl` reaches it. TFTP is the one UDP protocol that `curl` has.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}/"),
            Self::Udp(_) | Self::Dns(_) => format!("tftp://{}/x", self.address()),
        }
    }
}

/// All checks for a sandbox with this policy.
#[must_use]
pub fn checks(policy: &Policy, beacon: &Beacon, canaries: &[Canary]) -> Vec<ProbeCheck> {
    let get = |at| Probe::Get {
        host: beacon.name.clone(),
        at,
    };
    let is_gateway = || ProbeExpectation::Beacon(beacon.nonce.clone());
    let mut checks = vec![
        ProbeCheck::new(
            "the sandbox's network leads to its own gateway",
            get(None),
            is_gateway(),
        ),
        ProbeCheck::new(
            "a plain address is not reached",
            Probe::Connect((UNUSED, ODD_PORT).into()),
            ProbeExpectation::Nothing,
        ),
        ProbeCheck::new(
            "IPv6 is closed",
            Probe::Connect((UNUSED_V6, HTTPS).into()),
            ProbeExpectation::Nothing,
        ),
        ProbeCheck::new(
            "QUIC is closed",
            Probe::Send((UNUSED, HTTPS).into()),
            ProbeExpectation::Nothing,
        ),
        ProbeCheck::new(
            "the metadata service's address leads to the gateway",
            get(Some((METADATA, HTTP).into())),
            is_gateway(),
        ),
    ];
    checks.extend(filter_checks());
    if matches!(policy.mode, PolicyMode::Deny | PolicyMode::Allowlist) {
        checks.extend(denied_name_checks(beacon));
    }
    checks.extend(canaries.iter().map(|canary| canary_check(*canary, beacon)));
    checks
}

/// Checks that the seccomp profile is applied. Without it these sockets open where the kernel knows the family, whatever the
/// network namespace. The two that must open show that the probe works.
fn filter_checks() -> [ProbeCheck; 9] {
    let socket = |name, family, protocol, expected| {
        ProbeCheck::new(name, Probe::Socket { family, protocol }, expected)
    };
    let refused = |name, family, protocol| socket(name, family, protocol, ProbeExpectation::Filtered);
    [
        socket("a Unix socket opens", 1, 0, ProbeExpectation::Possible),
        socket("a route socket opens", 16, 0, ProbeExpectation::Possible),
        refused("vsock sockets are filtered", 40, 0),
        refused("packet sockets are filtered", 17, 0),
        refused("Bluetooth sockets are filtered", 31, 0),
        refused("crypto sockets are filtered", 38, 0),
        refused("netfilter sockets are filtered", 16, 12),
        refused("SCTP sockets are filtered", 2, 132),
        ProbeCheck::new("io_uring is filtered", Probe::IoUring, ProbeExpectation::Filtered),
    ]
}

/// These use a name that no policy can list.
fn denied_name_checks(beacon: &Beacon) -> [ProbeCheck; 2] {
    let check = |name, server| {
        let host = format!("{}.{}", beacon.nonce, beacon.name);
        let lookup = Probe::Lookup { name: host, server };
        ProbeCheck::new(name, lookup, ProbeExpectation::NoSuchName)
    };
    [
        check("a denied name does not resolve", None),
        check("a denied name does not resolve elsewhere", Some(UNUSED.into())),
    ]
}

fn canary_check(canary: Canary, beacon: &Beacon) -> ProbeCheck {
    match canary {
        Canary::Tcp(address) => ProbeCheck::new(
            "the host's TCP ports are not reached",
            Probe::Connect(address),
            ProbeExpectation::Nothing,
        ),
        Canary::Udp(address) => ProbeCheck::new(
            "the host's UDP ports are not reached",
            Probe::Send(address),
            ProbeExpectation::Nothing,
        ),
        Canary::Dns(address) => ProbeCheck::new(
            "the host's DNS is not reached",
            // The gateway's own name, which only the gateway knows.
            Probe::Lookup {
                name: beacon.name.clone(),
                server: Some(address),
            },
            ProbeExpectation::GatewayAlone,
        ),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn beacon() -> Beacon {
        Beacon {
            name: "beacon.invalid".to_owned(),
            nonce: "n0nce".to_owned(),
        }
    }

    /// What a sealed sandbox answers to each probe.
    fn sealed(probe: &Probe) -> &'static str {
        match probe {
            Probe::Connect(address) if address.is_ipv6() => "unreachable",
            Probe::Connect(_) | Probe::Send(_) => "refused",
            Probe::Lookup { name, .. } if *name == beacon().name => "at 198.18.0.1",
            Probe::Lookup { .. } => "no-such-name",
            Probe::Get { .. } => "http 200 n0nce",
            Probe::Socket { family: 1, .. }
            | Probe::Socket {
                family: 16,
                protocol: 0,
            } => "done",
            Probe::Socket { .. } | Probe::IoUring => "filtered",
            Probe::Exchange { .. }
            | Probe::Trickle { .. }
            | Probe::Follow { .. }
            | Probe::Echo(_)
            | Probe::Attempt(_) => {
                unreachable!("{probe:?} is for attacks")
            }
        }
    }

    #[test]
    fn a_sealed_sandbox_passes_every_check() {
        let canaries = [
            Canary::Tcp("10.0.0.1:1234".parse().unwrap()),
            Canary::Udp("10.0.0.1:1235".parse().unwrap()),
            Canary::Dns("10.0.0.1".parse().unwrap()),
        ];
        let checks = checks(&Policy::deny(), &beacon(), &canaries);
        assert_eq!(checks.len(), 19);
        for check in checks {
            assert_eq!(
                check.failure(&ProbeResult::parse(sealed(&check.probe))),
                None,
                "{check:?}"
            );
        }
    }

    #[rstest]
    #[case::silence("silent", "no answer in time")]
    #[case::an_answer("answered", "an answer")]
    #[case::another_gateway("http 200 other", "HTTP 200 \"other\"")]
    #[case::an_address("at 192.0.2.7", "the address 192.0.2.7")]
    #[case::the_metadata("http 200 credentials", "HTTP 200 \"credentials\"")]
    #[case::a_missing_module("absent", "does not exist")]
    #[case::a_broken_probe("failed permission denied", "failed permission denied")]
    fn any_other_result_fails_every_check(#[case] line: &str, #[case] result: &str) {
        let canary = Canary::Udp("10.0.0.1:1235".parse().unwrap());
        for check in checks(&Policy::deny(), &beacon(), &[canary]) {
            let failure = check.failure(&ProbeResult::parse(line)).unwrap();
            assert_eq!(failure.result, result);
            assert!(failure.to_string().contains(check.name), "{failure}");
        }
    }

    #[test]
    fn a_policy_that_allows_every_name_has_no_denied_name_checks() {
        let lookups = |policy| {
            let checks = checks(&policy, &beacon(), &[]);
            checks
                .into_iter()
                .filter(|check| matches!(check.probe, Probe::Lookup { .. }))
                .count()
        };
        assert_eq!(lookups(Policy::record()), 0);
        assert_eq!(lookups(Policy::allowlist([])), 2);
    }
}
