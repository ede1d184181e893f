//! What is tried from inside a sandbox before anything of the agent's runs in it, and what must be seen.
//!
//! Silence alone proves nothing: whoever carries these out first shows that each canary can be heard from outside, and
//! the beacon shows that the sandbox's network leads to its own gateway.

mod check;
mod seen;
mod trial;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use self::check::{Check, Expected, ProbeFailure};
pub use self::seen::Seen;
pub use self::trial::{Carrier, ForbiddenAction, Probe};
use super::host::HostName;
use super::policy::{Mode, Policy};

/// Where machines of a cloud ask for their credentials.
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// Addresses that are set aside for examples: nobody is there.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ELSEWHERE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// A port that nobody listens at, for protocols that are none of the web.
const ODD_PORT: u16 = 9;
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
const DNS: u16 = 53;

/// The gateway's own name and what it says there; see [`Expected::Beacon`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// A name that nobody else can have.
    pub name: String,
    /// Different for every gateway.
    pub says: String,
}

impl Beacon {
    /// One whose words nobody can know beforehand.
    #[must_use]
    pub fn random() -> Self {
        Self {
            name: "gateway.ralph.invalid".to_owned(),
            says: format!("{:016x}", fastrand::u64(..)),
        }
    }

    /// Where a name is, as seen from the gateway's own.
    #[must_use]
    pub fn place_of(&self, name: &HostName) -> Place {
        match name.as_str().strip_suffix(&self.name) {
            Some("") => Place::Itself,
            Some(labels) if labels.ends_with('.') => Place::Below,
            Some(_) | None => Place::Elsewhere,
        }
    }
}

/// Where a name is, as seen from the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is that name.
    Itself,
    /// Below it: a name that is asked for only to see that it is not there.
    Below,
    /// It has nothing to do with it.
    Elsewhere,
}

/// A listener on the host that must not hear anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Of TCP connections.
    Tcp(SocketAddr),
    /// Of datagrams.
    Udp(SocketAddr),
    /// Of datagrams to the port of DNS, at this address.
    Dns(IpAddr),
}

impl Canary {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match *self {
            Self::Tcp(address) | Self::Udp(address) => address,
            Self::Dns(address) => SocketAddr::new(address, DNS),
        }
    }

    /// How a program that takes addresses of the web speaks to it: of datagrams it knows one kind.
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}/"),
            Self::Udp(_) | Self::Dns(_) => format!("tftp://{}/x", self.address()),
        }
    }
}

/// All checks of a sandbox with this policy.
#[must_use]
pub fn checks(policy: &Policy, beacon: &Beacon, canaries: &[Canary]) -> Vec<Check> {
    let unknown_names = match policy.mode() {
        Mode::Deny | Mode::Allowlist => of_unknown_names(beacon).to_vec(),
        Mode::AllowAll | Mode::Record => Vec::new(),
    };
    let canaries = canaries.iter().map(|canary| of_canary(*canary, beacon));
    let mut checks = of_every_sandbox(beacon).to_vec();
    checks.extend(unknown_names);
    checks.extend(canaries);
    checks
}

fn of_every_sandbox(beacon: &Beacon) -> [Check; 5] {
    [
        Check::new(
            "the sandbox's network leads to its own gateway",
            Probe::get(&beacon.name, None),
            Expected::Beacon(beacon.says.clone()),
        ),
        Check::new(
            "a plain address is not reached",
            Probe::Connect((ELSEWHERE, ODD_PORT).into()),
            Expected::Nothing,
        ),
        Check::new(
            "IPv6 is closed",
            Probe::Connect((ELSEWHERE_V6, HTTPS).into()),
            Expected::Nothing,
        ),
        Check::new(
            "QUIC is closed",
            Probe::Send((ELSEWHERE, HTTPS).into()),
            Expected::Nothing,
        ),
        Check::new(
            "the metadata service's address leads to the gateway",
            Probe::get(&beacon.name, Some((METADATA, HTTP).into())),
            Expected::Beacon(beacon.says.clone()),
        ),
    ]
}

/// Of a name that nobody can have, and no policy can list.
fn of_unknown_names(beacon: &Beacon) -> [Check; 2] {
    let lookup = |server| Probe::Lookup {
        name: format!("{}.{}", beacon.says, beacon.name),
        server,
    };
    [
        Check::new(
            "a denied name does not resolve",
            lookup(None),
            Expected::NoSuchName,
        ),
        Check::new(
            "a denied name does not resolve elsewhere",
            lookup(Some(ELSEWHERE.into())),
            Expected::NoSuchName,
        ),
    ]
}

fn of_canary(canary: Canary, beacon: &Beacon) -> Check {
    match canary {
        Canary::Tcp(address) => Check::new(
            "this machine's TCP ports are not reached",
            Probe::Connect(address),
            Expected::Nothing,
        ),
        Canary::Udp(address) => Check::new(
            "this machine's UDP ports are not reached",
            Probe::Send(address),
            Expected::Nothing,
        ),
        Canary::Dns(address) => Check::new(
            "this machine's DNS is not reached",
            // The gateway's own name, which only the gateway knows.
            Probe::Lookup {
                name: beacon.name.clone(),
                server: Some(address),
            },
            Expected::GatewayAlone,
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
            says: "n0nce".to_owned(),
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
            Probe::Say { .. } | Probe::Echo(_) | Probe::Attempt(_) => {
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
        assert_eq!(checks.len(), 10);
        for check in checks {
            assert_eq!(
                check.failure(&Seen::parse(sealed(&check.probe))),
                None,
                "{check:?}"
            );
        }
    }

    #[rstest]
    #[case::silence("silent", "nothing in time")]
    #[case::an_answer("answered", "an answer")]
    #[case::another_gateway("http 200 other", "HTTP 200 \"other\"")]
    #[case::an_address("at 192.0.2.7", "the address 192.0.2.7")]
    #[case::the_metadata("http 200 credentials", "HTTP 200 \"credentials\"")]
    #[case::a_broken_probe("failed permission denied", "failed permission denied")]
    fn anything_else_fails_every_check_and_is_told(#[case] line: &str, #[case] told: &str) {
        let canary = Canary::Udp("10.0.0.1:1235".parse().unwrap());
        for check in checks(&Policy::deny(), &beacon(), &[canary]) {
            let failure = check.failure(&Seen::parse(line)).unwrap();
            assert_eq!(failure.seen, told);
            assert!(failure.to_string().contains(check.name), "{failure}");
        }
    }

    #[test]
    fn where_every_name_is_allowed_none_must_be_unknown() {
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
