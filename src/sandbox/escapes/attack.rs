//! The attacks on sandboxes with the host's operating system, as data. The guest runs them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::setup::{AttackSetup, REDIRECT, name};
use super::{AttackClass, AttackResult, AttackVerdict, payload};
use crate::network::probe::{Canary, Probe, ProbeCheck, ProbeExpectation, ProbeResult, ProbeTransport};

/// One attack, which must fail.
pub(super) struct Attack<A> {
    pub(super) class: AttackClass,
    /// The property that is attacked.
    pub(super) name: &'static str,
    /// What the attacker does: a probe for the guest, or arguments for `curl`.
    pub(super) action: A,
}

/// Attacks of one class.
type AttackTable = Vec<(&'static str, Probe)>;

/// Addresses that are reserved for documentation: they reach no server.
const UNUSED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
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
pub(super) fn attacks(setup: &AttackSetup) -> Vec<Attack<Probe>> {
    let canaries = setup.canaries();
    let tables = [
        (AttackClass::Names, names()),
        (AttackClass::Redirects, redirects(setup)),
        (AttackClass::Addresses, addresses(&canaries)),
        (AttackClass::Proxy, proxy(setup)),
        (AttackClass::Dns, dns(&canaries)),
        (AttackClass::Protocols, protocols()),
        (AttackClass::Places, places()),
        (AttackClass::Rebinding, rebinding(setup)),
        (AttackClass::Disagreement, disagreement()),
        (AttackClass::Matching, matching()),
        (AttackClass::Gateways, gateways(setup)),
        (AttackClass::Privileges, privileges(setup)),
        (AttackClass::Sockets, sockets()),
    ];
    let of_class = |(class, table): (AttackClass, AttackTable)| {
        let attack = move |(name, action)| Attack { class, name, action };
        table.into_iter().map(attack)
    };
    tables.into_iter().flat_map(of_class).collect()
}

/// A property that no provider enforces by default.
pub(super) fn known_gap() -> AttackResult {
    AttackResult::not_tried(
        "a request inside TLS names the host of the client hello",
        AttackClass::Disagreement,
        "the gateway sees the name in the client hello and decrypts nothing, so it cannot see the host of the request; \
         this is enforced for the hosts in sandbox.network.inspect",
    )
}

impl<A> Attack<A> {
    /// The result, from what the attacker observed, why that shows a success, and what reached the host.
    pub(super) fn result(
        &self,
        seen: String,
        success: Option<String>,
        hits: &[String],
        defence: &str,
    ) -> AttackResult {
        let reason = if hits.is_empty() {
            success
        } else {
            Some(hits.join(", "))
        };
        AttackResult {
            name: self.name.to_owned(),
            class: self.class,
            verdict: match reason {
                Some(_) => AttackVerdict::Open,
                None => AttackVerdict::Enforced,
            },
            seen,
            reason: reason.unwrap_or_else(|| defence.to_owned()),
        }
    }
}

impl Attack<Probe> {
    /// The result, from what the attacker observed and what reached the host.
    pub(super) fn judge(&self, seen: &ProbeResult, hits: &[String]) -> AttackResult {
        let check = ProbeCheck {
            name: self.name,
            probe: self.action.clone(),
            expected: expectation(&self.action),
        };
        let success = check.failure(seen).map(|failure| failure.to_string());
        self.result(seen.to_string(), success, hits, self.class.defence())
    }
}

/// What an attacker observes in a sealed sandbox.
fn expectation(probe: &Probe) -> ProbeExpectation {
    match probe {
        Probe::Connect(_) | Probe::Send(_) => ProbeExpectation::Nothing,
        Probe::Lookup { .. } | Probe::Follow { .. } => ProbeExpectation::NoSuchName,
        Probe::Get { .. } => ProbeExpectation::Denied,
        Probe::Exchange { to, .. } if to.port() == DNS => ProbeExpectation::Unknown,
        Probe::Exchange { .. } | Probe::Trickle { .. } => ProbeExpectation::Refusal,
        Probe::Echo(_) => ProbeExpectation::Own,
        Probe::Attempt(_) => ProbeExpectation::Impossible,
        Probe::Socket { .. } | Probe::IoUring => ProbeExpectation::Filtered,
    }
}

fn send_tcp(to: impl Into<SocketAddr>, bytes: impl Into<Vec<u8>>) -> Probe {
    Probe::Exchange {
        transport: ProbeTransport::Tcp,
        to: to.into(),
        bytes: bytes.into(),
    }
}

pub(super) fn send_http(request: impl Into<Vec<u8>>) -> Probe {
    send_tcp((UNUSED, HTTP), request)
}

fn send_tls(bytes: impl Into<Vec<u8>>) -> Probe {
    send_tcp((UNUSED, HTTPS), bytes)
}

fn query(server: impl Into<IpAddr>, name: &str, record_type: u16) -> Probe {
    Probe::Exchange {
        transport: ProbeTransport::Udp,
        to: (server.into(), DNS).into(),
        bytes: payload::dns_query(name, record_type),
    }
}

fn lookup(name: String) -> Probe {
    Probe::Lookup { name, server: None }
}

fn get(host: String, at: Option<SocketAddr>) -> Probe {
    Probe::Get { host, at }
}

fn names() -> AttackTable {
    let denied = name("denied");
    let hello = send_tls(payload::client_hello(Some(&denied)));
    let request = get(denied.clone(), Some((UNUSED, HTTP).into()));
    vec![
        ("a denied name does not resolve", lookup(denied)),
        ("a denied name is not reached over HTTP", request),
        ("a denied name is not reached over TLS", hello),
    ]
}

/// The server of the allowed name redirects to a denied name.
fn redirects(setup: &AttackSetup) -> AttackTable {
    let follow = Probe::Follow {
        host: setup.allowed_host(),
        path: REDIRECT.to_owned(),
    };
    vec![("a redirect to a denied name is not followed", follow)]
}

/// The canaries, at their addresses in all notations.
fn addresses(canaries: &[Canary]) -> AttackTable {
    let mut table = Vec::new();
    for canary in canaries {
        match *canary {
            Canary::Tcp(address) => {
                table.push(("host TCP ports are unreachable", Probe::Connect(address)));
                if let IpAddr::V4(v4) = address.ip() {
                    let [a, b, c, d] = v4.octets();
                    let nat64 = Ipv6Addr::from([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]);
                    let connect = |v6: Ipv6Addr| Probe::Connect((v6, address.port()).into());
                    table.push((
                        "host TCP ports are unreachable by IPv4-mapped addresses",
                        connect(v4.to_ipv6_mapped()),
                    ));
                    table.push((
                        "host TCP ports are unreachable by NAT64 addresses",
                        connect(nat64),
                    ));
                }
            }
            Canary::Udp(address) => table.push(("host UDP ports are unreachable", Probe::Send(address))),
            Canary::Dns(_) => {}
        }
    }
    table
}

fn proxy(setup: &AttackSetup) -> AttackTable {
    let own = proxy_credential(setup.phantom.expose());
    let (allowed, denied) = (name("allowed"), name("denied"));
    vec![
        ("a tunnel to a denied name is refused", tunnel(&denied, 443, &own)),
        (
            "a tunnel to an IP address is refused",
            tunnel(&UNUSED.to_string(), 443, &own),
        ),
        (
            "a tunnel to another port of an allowed name is refused",
            tunnel(&allowed, 22, &own),
        ),
        (
            "a proxy request for a denied name is refused",
            send_proxy(&format!("GET http://{denied}/"), &denied, &own),
        ),
    ]
}

/// The gateway of another run, or of none.
fn gateways(setup: &AttackSetup) -> AttackTable {
    let allowed = name("allowed");
    let foreign = proxy_credential("ralph-phantom-of-another-run");
    let bearer = format!("proxy-authorization: Bearer {}\r\n", setup.phantom.expose());
    let own_twice = proxy_credential(setup.phantom.expose()).repeat(2);
    vec![
        ("the proxy requires a phantom", tunnel(&allowed, 443, "")),
        (
            "the proxy refuses another run's phantom",
            tunnel(&allowed, 443, &foreign),
        ),
        (
            "the proxy takes the phantom in one form only",
            tunnel(&allowed, 443, &bearer),
        ),
        (
            "the proxy refuses two credentials",
            tunnel(&allowed, 443, &own_twice),
        ),
    ]
}

pub(super) fn proxy_credential(phantom: &str) -> String {
    let pair = BASE64_STANDARD.encode(format!("ralph:{phantom}"));
    format!("proxy-authorization: Basic {pair}\r\n")
}

pub(super) fn send_proxy(target: &str, host: &str, credential: &str) -> Probe {
    send_tcp(
        PROXY,
        format!("{target} HTTP/1.1\r\nhost: {host}\r\n{credential}\r\n"),
    )
}

fn tunnel(host: &str, port: u16, credential: &str) -> Probe {
    send_proxy(&format!("CONNECT {host}:{port}"), host, credential)
}

fn dns(canaries: &[Canary]) -> AttackTable {
    const DNS_OVER_TLS: u16 = 853;
    let denied = name("denied");
    let exfiltrated = format!("c2VjcmV0.{denied}");
    let over_tcp = send_tcp((UNUSED, DNS), payload::dns_query_over_tcp(&denied, A));
    let over_https = send_tls(payload::client_hello(Some(&name("resolver"))));
    let over_tls = Probe::Connect((UNUSED, DNS_OVER_TLS).into());
    let on_host = canaries.iter().filter_map(|canary| match canary {
        Canary::Dns(address) => Some((
            "a DNS server on the host is unreachable",
            query(*address, &denied, A),
        )),
        Canary::Tcp(_) | Canary::Udp(_) => None,
    });
    let mut table = vec![
        (
            "no other DNS server resolves a denied name",
            query(UNUSED, &denied, A),
        ),
        ("no other DNS server resolves a denied name over TCP", over_tcp),
        (
            "Docker's embedded DNS server does not resolve a denied name",
            query(EMBEDDED_DNS, &denied, A),
        ),
        ("a denied name has no TXT record", query(UNUSED, &denied, TXT)),
        ("a denied name has no records at all", query(UNUSED, &denied, ANY)),
        (
            "data in a DNS label does not get out",
            query(UNUSED, &exfiltrated, A),
        ),
        ("DNS over HTTPS to a denied name is refused", over_https),
        ("DNS over TLS is blocked", over_tls),
    ];
    table.extend(on_host);
    table
}

fn protocols() -> AttackTable {
    use Probe::{Connect, Echo, Send};
    const SSH: u16 = 22;
    let attempt = |action: &str| Probe::Attempt(action.to_owned());
    vec![
        ("QUIC is blocked", Send((UNUSED, HTTPS).into())),
        ("SSH to an IP address is blocked", Connect((UNUSED, SSH).into())),
        ("IPv6 is blocked", Connect((UNUSED_V6, HTTPS).into())),
        ("an ICMP echo request stays in the sandbox", Echo(UNUSED)),
        ("raw IP sockets cannot be opened", attempt("raw-socket")),
        ("packet sockets cannot be opened", attempt("packet-socket")),
        ("SCTP sockets cannot be opened", attempt("sctp-socket")),
        ("loopback is the only interface", attempt("other-interface")),
    ]
}

/// Where clouds serve credentials, where container engines listen, and the usual private networks.
fn places() -> AttackTable {
    const ENGINE: u16 = 2375;
    let bridge = Ipv4Addr::new(172, 17, 0, 1);
    let engine = Probe::Connect((bridge, ENGINE).into());
    let [metadata, container_metadata, ten, twelve, sixteen, shared] = [
        Ipv4Addr::new(169, 254, 169, 254),
        Ipv4Addr::new(169, 254, 170, 2),
        Ipv4Addr::new(10, 0, 0, 1),
        bridge,
        Ipv4Addr::new(192, 168, 0, 1),
        Ipv4Addr::new(100, 64, 0, 1),
    ]
    .map(|address| get(address.to_string(), Some((address, HTTP).into())));
    vec![
        ("the cloud metadata service is denied", metadata),
        ("the container metadata service is denied", container_metadata),
        ("the private network 10.0.0.0/8 is denied", ten),
        ("the private network 172.16.0.0/12 is denied", twelve),
        ("the private network 192.168.0.0/16 is denied", sixteen),
        ("the shared network 100.64.0.0/10 is denied", shared),
        ("no container engine listens on the bridge", engine),
    ]
}

fn rebinding(setup: &AttackSetup) -> AttackTable {
    let [metadata, private] = ["metadata", "private"].map(|label| get(name(label), None));
    let mut table = vec![
        ("an allowed name does not reach the metadata service", metadata),
        ("an allowed name does not reach a private network", private),
    ];
    let own = setup.rebound_host().map(|host| get(host, None));
    table.extend(own.map(|probe| ("an allowed name does not reach the host", probe)));
    table
}

fn disagreement() -> AttackTable {
    let hello = |server_name| send_tls(payload::client_hello(server_name));
    let (allowed, denied) = (name("allowed"), name("denied"));
    let plain = format!("GET / HTTP/1.1\r\nhost: {allowed}\r\n\r\n");
    let two_hosts = format!("GET / HTTP/1.1\r\nhost: {allowed}\r\nhost: {denied}\r\n\r\n");
    let another_host = format!("GET http://{denied}/ HTTP/1.1\r\nhost: {allowed}\r\n\r\n");
    let two_lengths = format!(
        "POST / HTTP/1.1\r\nhost: {allowed}\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    );
    let tunnel = format!("CONNECT {allowed}:443 HTTP/1.1\r\nhost: {allowed}\r\n\r\n");
    let no_host = "GET / HTTP/1.1\r\n\r\n";
    vec![
        ("TLS without a server name is refused", hello(None)),
        (
            "TLS with an IP address as server name is refused",
            hello(Some("192.0.2.1")),
        ),
        ("HTTP on the TLS port is refused", send_tls(plain)),
        ("a request with two host headers is refused", send_http(two_hosts)),
        ("a request without a host header is refused", send_http(no_host)),
        (
            "a request line that names another host is refused",
            send_http(another_host),
        ),
        ("a request with two lengths is refused", send_http(two_lengths)),
        ("a tunnel outside the proxy is refused", send_http(tunnel)),
    ]
}

fn matching() -> AttackTable {
    let allowed = name("allowed");
    let [longer, prefix, below] = [
        format!("not{allowed}"),
        format!("{allowed}.test"),
        format!("below.{allowed}"),
    ]
    .map(lookup);
    let [parent, two_labels, homograph] =
        ["wild", "two.labels.wild", "xn--llowed-8ve"].map(|label| lookup(name(label)));
    vec![
        ("a rule does not match a longer label", longer),
        ("a rule does not match as a prefix", prefix),
        ("a rule does not match subdomains", below),
        ("a wildcard does not match its parent domain", parent),
        ("a wildcard matches one label only", two_labels),
        ("a rule does not match a homograph", homograph),
    ]
}

fn privileges(setup: &AttackSetup) -> AttackTable {
    let attempt = |action: &str| Probe::Attempt(action.to_owned());
    let find = |path: &str| attempt(&format!("find {path}"));
    let write = |path: &str| attempt(&format!("overwrite {path}"));
    let marker = setup.marker();
    vec![
        ("the firewall cannot be opened", attempt("open-firewall")),
        ("nothing can be mounted", attempt("mount /tmp")),
        ("no network namespace can be created", attempt("leave-network")),
        ("no user namespace can be created", attempt("leave-user")),
        (
            "the engine's socket is not in /var/run",
            find("/var/run/docker.sock"),
        ),
        ("the engine's socket is not in /run", find("/run/docker.sock")),
        ("files of the host are absent", find(&marker)),
        (
            "files of the host are absent in /proc/1/root",
            find(&format!("/proc/1/root{marker}")),
        ),
        (
            "the core dump handler cannot be set",
            write("/proc/sys/kernel/core_pattern"),
        ),
        (
            "the cgroup release agent cannot be set",
            write("/sys/fs/cgroup/release_agent"),
        ),
        ("the kernel takes no SysRq commands", write("/proc/sysrq-trigger")),
        ("physical memory cannot be written", write("/dev/mem")),
    ]
}

/// Sockets are only opened, never connected.
fn sockets() -> AttackTable {
    let socket = |family, protocol| Probe::Socket { family, protocol };
    vec![
        ("vsock sockets cannot be opened", socket(40, 0)),
        ("packet sockets cannot be opened", socket(17, 0)),
        ("XDP sockets cannot be opened", socket(44, 0)),
        ("Bluetooth sockets cannot be opened", socket(31, 0)),
        ("CAN sockets cannot be opened", socket(29, 0)),
        ("TIPC sockets cannot be opened", socket(30, 0)),
        ("RDS sockets cannot be opened", socket(21, 0)),
        ("SMC sockets cannot be opened", socket(43, 0)),
        ("crypto sockets cannot be opened", socket(38, 0)),
        ("netfilter sockets cannot be opened", socket(16, 12)),
        ("uevent sockets cannot be opened", socket(16, 15)),
        ("generic netlink sockets cannot be opened", socket(16, 16)),
        ("SCTP sockets cannot be opened over IPv4", socket(2, 132)),
        ("SCTP sockets cannot be opened over IPv6", socket(10, 132)),
        ("io_uring cannot be set up", Probe::IoUring),
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mount() -> Attack<Probe> {
        Attack {
            class: AttackClass::Privileges,
            name: "nothing can be mounted",
            action: Probe::Attempt("mount /tmp".to_owned()),
        }
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
            .map(|attack| (attack.name, attack.action.to_string()))
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), attacks.len());
    }
}
