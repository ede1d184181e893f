//! The attacks on sandboxes with the host's operating system, as data. The guest runs them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::setup::{AttackSetup, name};
use super::{AttackClass, AttackResult, AttackVerdict, payload};
use crate::network::probe::{
    Canary, ForbiddenAction, Probe, ProbeCheck, ProbeExpectation, ProbeResult, ProbeTransport,
};

/// One attack: a probe, and what it must observe.
pub(super) struct Attack {
    pub(super) class: AttackClass,
    pub(super) check: ProbeCheck,
}

/// A property that sealed sandboxes do not have, and why.
pub(super) struct KnownGap {
    pub(super) name: &'static str,
    pub(super) class: AttackClass,
    pub(super) reason: &'static str,
}

impl KnownGap {
    pub(super) fn to_result(&self) -> AttackResult {
        AttackResult::not_tried(self.name, self.class, self.reason)
    }
}

pub(super) const KNOWN_GAPS: &[KnownGap] = &[KnownGap {
    name: "a request inside TLS names the host of the client hello",
    class: AttackClass::Disagreement,
    reason: "the gateway sees the name in the client hello and decrypts nothing, so it cannot see the host of the request; this is enforced for the hosts in sandbox.network.inspect",
}];

/// Addresses that are reserved for documentation: they reach no server.
const UNUSED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const UNUSED_IP: IpAddr = IpAddr::V4(UNUSED);
const UNUSED_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Docker's embedded DNS server.
const EMBEDDED_DNS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
/// The explicit proxy inside the sandbox.
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);
const DNS: u16 = 53;
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// DNS record types.
const A: u16 = 1;
const TXT: u16 = 16;
const ANY: u16 = 255;

/// All attacks.
pub(super) fn attacks(setup: &AttackSetup) -> Vec<Attack> {
    let canaries = setup.canaries();
    [
        names(),
        canaries.iter().flat_map(addresses).collect(),
        proxy(setup),
        dns(),
        protocols(),
        places(),
        rebinding(setup),
        disagreement(),
        matching(),
        privileges(setup),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Attack {
    fn new(class: AttackClass, name: &'static str, probe: Probe, expected: ProbeExpectation) -> Self {
        Self {
            class,
            check: ProbeCheck {
                name,
                probe,
                expected,
            },
        }
    }

    /// The result, from what the attacker observed and what reached the host.
    pub(super) fn judge(&self, seen: &ProbeResult, hits: &[String]) -> AttackResult {
        let (verdict, reason) = match self.check.failure(seen) {
            _ if !hits.is_empty() => (AttackVerdict::Open, hits.join(", ")),
            Some(failure) => (AttackVerdict::Open, failure.to_string()),
            None => (AttackVerdict::Enforced, self.class.defence().to_owned()),
        };
        AttackResult {
            name: self.check.name.to_owned(),
            class: self.class,
            verdict,
            seen: seen.to_string(),
            reason,
        }
    }
}

fn send_tcp(to: impl Into<SocketAddr>, bytes: impl Into<Vec<u8>>) -> Probe {
    Probe::Exchange {
        transport: ProbeTransport::Tcp,
        to: to.into(),
        bytes: bytes.into(),
    }
}

fn query(server: IpAddr, name: &str, record_type: u16) -> Probe {
    Probe::Exchange {
        transport: ProbeTransport::Udp,
        to: (server, DNS).into(),
        bytes: payload::dns_query(name, record_type),
    }
}

fn lookup(name: String) -> Probe {
    Probe::Lookup { name, server: None }
}

fn get(host: String, at: Option<SocketAddr>) -> Probe {
    Probe::Get { host, at }
}

fn names() -> Vec<Attack> {
    let attack = |name, probe, expected| Attack::new(AttackClass::Names, name, probe, expected);
    let denied = name("denied");
    let hello = payload::client_hello(Some(&denied));
    vec![
        attack(
            "a denied name does not resolve",
            lookup(denied.clone()),
            ProbeExpectation::NoSuchName,
        ),
        attack(
            "a denied name is not reached over HTTP",
            get(denied, Some((UNUSED_IP, HTTP).into())),
            ProbeExpectation::Denied,
        ),
        attack(
            "a denied name is not reached over TLS",
            send_tcp((UNUSED_IP, HTTPS), hello),
            ProbeExpectation::Refusal,
        ),
    ]
}

/// A canary, at its address in all notations.
fn addresses(canary: &Canary) -> Vec<Attack> {
    let attack = |name, probe| Attack::new(AttackClass::Addresses, name, probe, ProbeExpectation::Nothing);
    let as_v6 = |address: SocketAddr, wrap: fn(Ipv4Addr) -> Ipv6Addr| match address.ip() {
        IpAddr::V4(v4) => Some(Probe::Connect((wrap(v4), address.port()).into())),
        IpAddr::V6(_) => None,
    };
    match *canary {
        Canary::Tcp(address) => {
            let mapped = as_v6(address, |v4| v4.to_ipv6_mapped());
            let translated = as_v6(address, |v4| {
                let [a, b, c, d] = v4.octets();
                Ipv6Addr::from([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
            });
            let mapped =
                mapped.map(|probe| attack("host TCP ports are unreachable by IPv4-mapped addresses", probe));
            let translated =
                translated.map(|probe| attack("host TCP ports are unreachable by NAT64 addresses", probe));
            let plain = attack("host TCP ports are unreachable", Probe::Connect(address));
            std::iter::once(plain).chain(mapped).chain(translated).collect()
        }
        Canary::Udp(address) => vec![attack("host UDP ports are unreachable", Probe::Send(address))],
        Canary::Dns(address) => vec![Attack::new(
            AttackClass::Dns,
            "a DNS server on the host is unreachable",
            query(address, &name("denied"), A),
            ProbeExpectation::Unknown,
        )],
    }
}

fn proxy(setup: &AttackSetup) -> Vec<Attack> {
    let attack = |name, target: &str, host: &str, credential: &str| {
        let request = format!("{target} HTTP/1.1\r\nhost: {host}\r\n{credential}\r\n");
        let probe = send_tcp(PROXY, request);
        Attack::new(AttackClass::Proxy, name, probe, ProbeExpectation::Refusal)
    };
    let credential = |phantom: &str| {
        let pair = BASE64_STANDARD.encode(format!("ralph:{phantom}"));
        format!("proxy-authorization: Basic {pair}\r\n")
    };
    let (allowed, denied) = (name("allowed"), name("denied"));
    let own = credential(setup.phantom().expose());
    let foreign = credential("ralph-phantom-of-another-run");
    let address = UNUSED.to_string();
    let connect = |host: &str, port: u16| format!("CONNECT {host}:{port}");
    vec![
        attack(
            "the proxy requires a phantom",
            &connect(&allowed, 443),
            &allowed,
            "",
        ),
        attack(
            "the proxy refuses another run's phantom",
            &connect(&allowed, 443),
            &allowed,
            &foreign,
        ),
        attack(
            "a tunnel to a denied name is refused",
            &connect(&denied, 443),
            &denied,
            &own,
        ),
        attack(
            "a tunnel to an IP address is refused",
            &connect(&address, 443),
            &address,
            &own,
        ),
        attack(
            "a tunnel to another port of an allowed name is refused",
            &connect(&allowed, 22),
            &allowed,
            &own,
        ),
        attack(
            "a proxy request for a denied name is refused",
            &format!("GET http://{denied}/"),
            &denied,
            &own,
        ),
    ]
}

fn dns() -> Vec<Attack> {
    const DNS_OVER_TLS: u16 = 853;
    let attack = |name, probe, expected| Attack::new(AttackClass::Dns, name, probe, expected);
    let unknown = |name, probe| attack(name, probe, ProbeExpectation::Unknown);
    let denied = name("denied");
    let exfiltrated = format!("c2VjcmV0.{denied}");
    let over_tcp = payload::dns_query_over_tcp(&denied, A);
    let over_https = payload::client_hello(Some(&name("resolver")));
    vec![
        unknown(
            "no other DNS server resolves a denied name",
            query(UNUSED_IP, &denied, A),
        ),
        unknown(
            "no other DNS server resolves a denied name over TCP",
            send_tcp((UNUSED_IP, DNS), over_tcp),
        ),
        unknown(
            "Docker's embedded DNS server does not resolve a denied name",
            query(EMBEDDED_DNS, &denied, A),
        ),
        unknown("a denied name has no TXT record", query(UNUSED_IP, &denied, TXT)),
        unknown(
            "a denied name has no records at all",
            query(UNUSED_IP, &denied, ANY),
        ),
        unknown(
            "data in a DNS label does not get out",
            query(UNUSED_IP, &exfiltrated, A),
        ),
        attack(
            "DNS over HTTPS to a denied name is refused",
            send_tcp((UNUSED_IP, HTTPS), over_https),
            ProbeExpectation::Refusal,
        ),
        attack(
            "DNS over TLS is blocked",
            Probe::Connect((UNUSED_IP, DNS_OVER_TLS).into()),
            ProbeExpectation::Nothing,
        ),
    ]
}

fn protocols() -> Vec<Attack> {
    const SSH: u16 = 22;
    let attack = |name, probe, expected| Attack::new(AttackClass::Protocols, name, probe, expected);
    let blocked = |name, probe| attack(name, probe, ProbeExpectation::Nothing);
    let impossible = |name, action| attack(name, Probe::Attempt(action), ProbeExpectation::Impossible);
    vec![
        blocked("QUIC is blocked", Probe::Send((UNUSED_IP, HTTPS).into())),
        blocked(
            "SSH to an IP address is blocked",
            Probe::Connect((UNUSED_IP, SSH).into()),
        ),
        blocked("IPv6 is blocked", Probe::Connect((UNUSED_V6, HTTPS).into())),
        attack(
            "an ICMP echo request stays in the sandbox",
            Probe::Echo(UNUSED),
            ProbeExpectation::Own,
        ),
        impossible("raw IP sockets cannot be opened", ForbiddenAction::RawSocket),
        impossible("packet sockets cannot be opened", ForbiddenAction::PacketSocket),
        impossible("SCTP sockets cannot be opened", ForbiddenAction::SctpSocket),
        impossible("loopback is the only interface", ForbiddenAction::OtherInterface),
    ]
}

/// Where clouds serve credentials, where container engines listen, and the usual private networks.
fn places() -> Vec<Attack> {
    const ENGINE: u16 = 2375;
    let denied = |name, address: [u8; 4]| {
        let address = Ipv4Addr::from(address);
        let probe = get(address.to_string(), Some((address, HTTP).into()));
        Attack::new(AttackClass::Places, name, probe, ProbeExpectation::Denied)
    };
    vec![
        denied("the cloud metadata service is denied", [169, 254, 169, 254]),
        denied("the container metadata service is denied", [169, 254, 170, 2]),
        denied("the private network 10.0.0.0/8 is denied", [10, 0, 0, 1]),
        denied("the private network 172.16.0.0/12 is denied", [172, 17, 0, 1]),
        denied("the private network 192.168.0.0/16 is denied", [192, 168, 0, 1]),
        denied("the shared network 100.64.0.0/10 is denied", [100, 64, 0, 1]),
        Attack::new(
            AttackClass::Places,
            "no container engine listens on the bridge",
            Probe::Connect((Ipv4Addr::new(172, 17, 0, 1), ENGINE).into()),
            ProbeExpectation::Nothing,
        ),
    ]
}

fn rebinding(setup: &AttackSetup) -> Vec<Attack> {
    let attack = |name, host| {
        Attack::new(
            AttackClass::Rebinding,
            name,
            get(host, None),
            ProbeExpectation::Denied,
        )
    };
    let own = setup
        .rebound_host()
        .map(|host| attack("an allowed name does not reach the host", host));
    let mut attacks = vec![
        attack(
            "an allowed name does not reach the metadata service",
            name("metadata"),
        ),
        attack(
            "an allowed name does not reach a private network",
            name("private"),
        ),
    ];
    attacks.extend(own);
    attacks
}

fn disagreement() -> Vec<Attack> {
    let attack = |name, port: u16, bytes: Vec<u8>| {
        let probe = send_tcp((UNUSED_IP, port), bytes);
        Attack::new(AttackClass::Disagreement, name, probe, ProbeExpectation::Refusal)
    };
    let http = |name, text: String| attack(name, HTTP, text.into_bytes());
    let (allowed, denied) = (name("allowed"), name("denied"));
    vec![
        attack(
            "TLS without a server name is refused",
            HTTPS,
            payload::client_hello(None),
        ),
        attack(
            "TLS with an IP address as server name is refused",
            HTTPS,
            payload::client_hello(Some("192.0.2.1")),
        ),
        attack(
            "HTTP on the TLS port is refused",
            HTTPS,
            format!("GET / HTTP/1.1\r\nhost: {allowed}\r\n\r\n").into_bytes(),
        ),
        http(
            "a request with two host headers is refused",
            format!("GET / HTTP/1.1\r\nhost: {allowed}\r\nhost: {denied}\r\n\r\n"),
        ),
        http(
            "a request without a host header is refused",
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
        ),
        http(
            "a request line that names another host is refused",
            format!("GET http://{denied}/ HTTP/1.1\r\nhost: {allowed}\r\n\r\n"),
        ),
        http(
            "a request with two lengths is refused",
            format!(
                "POST / HTTP/1.1\r\nhost: {allowed}\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        http(
            "a tunnel outside the proxy is refused",
            format!("CONNECT {allowed}:443 HTTP/1.1\r\nhost: {allowed}\r\n\r\n"),
        ),
    ]
}

fn matching() -> Vec<Attack> {
    let attack = |attack_name, host| {
        Attack::new(
            AttackClass::Matching,
            attack_name,
            lookup(host),
            ProbeExpectation::NoSuchName,
        )
    };
    let allowed = name("allowed");
    vec![
        attack("a rule does not match a longer label", format!("not{allowed}")),
        attack("a rule does not match as a prefix", format!("{allowed}.test")),
        attack("a rule does not match subdomains", format!("below.{allowed}")),
        attack("a wildcard does not match its parent domain", name("wild")),
        attack("a wildcard matches one label only", name("two.labels.wild")),
        attack("a rule does not match a homograph", name("xn--llowed-8ve")),
    ]
}

fn privileges(setup: &AttackSetup) -> Vec<Attack> {
    use ForbiddenAction::{Find, LeaveNetwork, LeaveUser, Mount, OpenFirewall, Overwrite};
    let attack = |name, action| {
        let probe = Probe::Attempt(action);
        Attack::new(AttackClass::Privileges, name, probe, ProbeExpectation::Impossible)
    };
    let find = |path: &str| Find(path.to_owned());
    let through_init = format!("/proc/1/root{}", setup.marker());
    vec![
        attack("the firewall cannot be opened", OpenFirewall),
        attack("nothing can be mounted", Mount("/tmp")),
        attack("no network namespace can be created", LeaveNetwork),
        attack("no user namespace can be created", LeaveUser),
        attack(
            "the engine's socket is not in /var/run",
            find("/var/run/docker.sock"),
        ),
        attack("the engine's socket is not in /run", find("/run/docker.sock")),
        attack("files of the host are absent", find(&setup.marker())),
        attack("files of the host are absent in /proc/1/root", Find(through_init)),
        attack(
            "the core dump handler cannot be set",
            Overwrite("/proc/sys/kernel/core_pattern"),
        ),
        attack(
            "the cgroup release agent cannot be set",
            Overwrite("/sys/fs/cgroup/release_agent"),
        ),
        attack(
            "the kernel takes no SysRq commands",
            Overwrite("/proc/sysrq-trigger"),
        ),
        attack("physical memory cannot be written", Overwrite("/dev/mem")),
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mount() -> Attack {
        Attack::new(
            AttackClass::Privileges,
            "nothing can be mounted",
            Probe::Attempt(ForbiddenAction::Mount("/tmp")),
            ProbeExpectation::Impossible,
        )
    }

    #[rstest]
    #[case::refused("forbidden", &[], AttackVerdict::Enforced, "no capabilities")]
    #[case::done("done", &[], AttackVerdict::Open, "attempt mount /tmp")]
    #[case::not_carried_out("failed unknown action", &[], AttackVerdict::Open, "failed unknown action")]
    #[case::reached_the_host("forbidden", &["received at 192.0.2.1:9"], AttackVerdict::Open, "received at 192.0.2.1:9")]
    fn an_attack_has_failed_if_it_saw_that_and_nothing_reached_the_host(
        #[case] line: &str,
        #[case] hits: &[&str],
        #[case] verdict: AttackVerdict,
        #[case] reason: &str,
    ) {
        let hits: Vec<String> = hits.iter().map(ToString::to_string).collect();
        let result = mount().judge(&ProbeResult::parse(line), &hits);
        assert_eq!(result.verdict, verdict);
        assert!(result.reason.contains(reason), "{result:?}");
    }

    #[tokio::test]
    async fn every_attack_is_unique() {
        let attacks = attacks(&AttackSetup::open().await.unwrap());
        let mut names: Vec<(&str, String)> = attacks
            .iter()
            .map(|attack| (attack.check.name, attack.check.probe.to_string()))
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), attacks.len());
    }
}
