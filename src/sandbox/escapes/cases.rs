//! The attacks, as data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::stage::{Stage, name};
use super::{Class, NOT_TRIED, Tried, Verdict, wire};
use crate::network::probe::{Canary, Carrier, Check, Expected, ForbiddenAction, Probe, Seen};

/// An attack.
pub(super) struct Case {
    pub(super) class: Class,
    pub(super) check: Check,
}

/// What no sealed sandbox holds, and why.
pub(super) struct Gap {
    pub(super) name: &'static str,
    pub(super) class: Class,
    pub(super) reason: &'static str,
}

impl Gap {
    /// That nobody holds it.
    pub(super) fn told(&self) -> Tried {
        Tried {
            name: self.name.to_owned(),
            class: self.class,
            verdict: Verdict::NotEnforceable,
            seen: NOT_TRIED.to_owned(),
            reason: self.reason.to_owned(),
        }
    }
}

pub(super) const GAPS: &[Gap] = &[Gap {
    name: "a request inside TLS is for the host of its hello",
    class: Class::Disagreement,
    reason: "the gateway reads the name in the hello and decrypts nothing, so that it cannot see the request's own host; hosts of sandbox.network.inspect are held to it",
}];

/// An address that is set aside for examples: nobody is there.
const EXAMPLE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ELSEWHERE: IpAddr = IpAddr::V4(EXAMPLE);
/// Where the engine's own resolver is in networks that have one.
const EMBEDDED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
/// Where the explicit proxy is inside.
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);
const DNS: u16 = 53;
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// All attacks.
pub(super) fn cases(stage: &Stage) -> Vec<Case> {
    let canaries = stage.canaries();
    [
        names(),
        canaries.iter().flat_map(addresses).collect(),
        proxy(stage),
        dns(),
        protocols(),
        places(),
        rebinding(stage),
        disagreement(),
        matching(),
        privileges(stage),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Case {
    fn new(class: Class, name: &'static str, probe: Probe, expected: Expected) -> Self {
        Self {
            class,
            check: Check {
                name,
                probe,
                expected,
            },
        }
    }

    /// What comes of it, by what was seen inside and heard outside.
    pub(super) fn judge(&self, seen: &Seen, heard: &[String]) -> Tried {
        let failure = self.check.failure(seen);
        let (verdict, reason) = match (&failure, heard.is_empty()) {
            (None, true) => (Verdict::Enforced, self.class.held_by().to_owned()),
            (_, false) => (Verdict::Open, heard.join(", ")),
            (Some(failure), true) => (Verdict::Open, failure.to_string()),
        };
        Tried {
            name: self.check.name.to_owned(),
            class: self.class,
            verdict,
            seen: seen.to_string(),
            reason,
        }
    }

    /// That a provider does not hold it.
    pub(super) fn not_tried(&self, reason: &str) -> Tried {
        Tried {
            name: self.check.name.to_owned(),
            class: self.class,
            verdict: Verdict::NotEnforceable,
            seen: NOT_TRIED.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

fn say(over: Carrier, to: impl Into<SocketAddr>, bytes: impl Into<Vec<u8>>) -> Probe {
    Probe::Say {
        over,
        to: to.into(),
        bytes: bytes.into(),
    }
}

fn lookup(name: String) -> Probe {
    Probe::Lookup { name, server: None }
}

fn get(host: String, at: Option<SocketAddr>) -> Probe {
    Probe::Get { host, at }
}

fn names() -> Vec<Case> {
    let case = |name, probe, expected| Case::new(Class::Names, name, probe, expected);
    let denied = name("denied");
    vec![
        case(
            "a denied name has no address",
            lookup(denied.clone()),
            Expected::NoSuchName,
        ),
        case(
            "a denied name is not reached over HTTP",
            get(denied.clone(), Some((ELSEWHERE, HTTP).into())),
            Expected::Denied,
        ),
        case(
            "a denied name is not reached over TLS",
            say(Carrier::Tcp, (ELSEWHERE, HTTPS), wire::hello(Some(&denied))),
            Expected::Refusal,
        ),
    ]
}

/// Each canary, at its address in every way of writing it.
fn addresses(canary: &Canary) -> Vec<Case> {
    let case = |name, probe, expected| Case::new(Class::Addresses, name, probe, expected);
    let six = |address: SocketAddr, wrap: fn(Ipv4Addr) -> Ipv6Addr| match address.ip() {
        IpAddr::V4(four) => Some(Probe::Connect((wrap(four), address.port()).into())),
        IpAddr::V6(_) => None,
    };
    match *canary {
        Canary::Tcp(address) => [
            (
                "a TCP port of this machine is not reached",
                Some(Probe::Connect(address)),
            ),
            (
                "no TCP port of this machine is reached by an IPv4 address written as IPv6",
                six(address, |four| four.to_ipv6_mapped()),
            ),
            (
                "no TCP port of this machine is reached by an address behind a translator's prefix",
                six(address, |four| {
                    let [a, b, c, d] = four.octets();
                    Ipv6Addr::from([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
                }),
            ),
        ]
        .into_iter()
        .filter_map(|(name, probe)| Some(case(name, probe?, Expected::Nothing)))
        .collect(),
        Canary::Udp(address) => vec![case(
            "a UDP port of this machine is not reached",
            Probe::Send(address),
            Expected::Nothing,
        )],
        Canary::Dns(address) => vec![Case::new(
            Class::Dns,
            "a DNS server on this machine is not asked",
            say(Carrier::Udp, (address, DNS), wire::query(&name("denied"), 1)),
            Expected::Unknown,
        )],
    }
}

fn proxy(stage: &Stage) -> Vec<Case> {
    let case = |name, request: String| {
        let probe = say(Carrier::Tcp, PROXY, request);
        Case::new(Class::Proxy, name, probe, Expected::Refusal)
    };
    let (allowed, denied) = (name("allowed"), name("denied"));
    let credential = |phantom: &str| {
        let pair = BASE64_STANDARD.encode(format!("ralph:{phantom}"));
        format!("proxy-authorization: Basic {pair}\r\n")
    };
    let own = credential(stage.phantom().expose());
    vec![
        case(
            "the proxy serves nobody without a phantom",
            format!("CONNECT {allowed}:443 HTTP/1.1\r\nhost: {allowed}\r\n\r\n"),
        ),
        case(
            "the proxy does not serve another run's phantom",
            format!(
                "CONNECT {allowed}:443 HTTP/1.1\r\nhost: {allowed}\r\n{}\r\n",
                credential("ralph-phantom-of-another-run")
            ),
        ),
        case(
            "a tunnel to a denied name is refused",
            format!("CONNECT {denied}:443 HTTP/1.1\r\nhost: {denied}\r\n{own}\r\n"),
        ),
        case(
            "a tunnel to an address is refused",
            format!("CONNECT {ELSEWHERE}:443 HTTP/1.1\r\nhost: {ELSEWHERE}\r\n{own}\r\n"),
        ),
        case(
            "a tunnel to another port of an allowed name is refused",
            format!("CONNECT {allowed}:22 HTTP/1.1\r\nhost: {allowed}\r\n{own}\r\n"),
        ),
        case(
            "a whole address of a denied name is refused",
            format!("GET http://{denied}/ HTTP/1.1\r\nhost: {denied}\r\n{own}\r\n"),
        ),
    ]
}

fn dns() -> Vec<Case> {
    const A: u16 = 1;
    const TXT: u16 = 16;
    const ANY: u16 = 255;
    const DNS_OVER_TLS: u16 = 853;
    let case = |name, probe| Case::new(Class::Dns, name, probe, Expected::Unknown);
    let denied = name("denied");
    let datagram = |server: IpAddr, kind| say(Carrier::Udp, (server, DNS), wire::query(&denied, kind));
    vec![
        case("no other server knows a denied name", datagram(ELSEWHERE, A)),
        case(
            "no other server knows a denied name over TCP",
            say(Carrier::Tcp, (ELSEWHERE, DNS), wire::query_over_tcp(&denied, A)),
        ),
        case(
            "the engine's own server knows no denied name",
            datagram(EMBEDDED, A),
        ),
        case("a denied name has no text", datagram(ELSEWHERE, TXT)),
        case("a denied name has nothing at all", datagram(ELSEWHERE, ANY)),
        case(
            "what is in a label goes nowhere",
            lookup_at(&format!("c2VjcmV0.{}", name("denied")), ELSEWHERE),
        ),
        Case::new(
            Class::Dns,
            "DNS over HTTPS under a denied name is refused",
            say(
                Carrier::Tcp,
                (ELSEWHERE, HTTPS),
                wire::hello(Some(&name("resolver"))),
            ),
            Expected::Refusal,
        ),
        Case::new(
            Class::Dns,
            "DNS over TLS is closed",
            Probe::Connect((ELSEWHERE, DNS_OVER_TLS).into()),
            Expected::Nothing,
        ),
    ]
}

fn lookup_at(name: &str, server: IpAddr) -> Probe {
    say(Carrier::Udp, (server, DNS), wire::query(name, 1))
}

fn protocols() -> Vec<Case> {
    const SSH: u16 = 22;
    let case = |name, probe, expected| Case::new(Class::Protocols, name, probe, expected);
    vec![
        case(
            "QUIC is closed",
            Probe::Send((ELSEWHERE, HTTPS).into()),
            Expected::Nothing,
        ),
        case(
            "SSH to an address is closed",
            Probe::Connect((ELSEWHERE, SSH).into()),
            Expected::Nothing,
        ),
        case(
            "IPv6 is closed",
            Probe::Connect((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), HTTPS).into()),
            Expected::Nothing,
        ),
        case(
            "an echo request (ICMP) stays inside",
            Probe::Echo(EXAMPLE),
            Expected::Own,
        ),
        case(
            "whole packets cannot be sent",
            Probe::Attempt(ForbiddenAction::RawSocket),
            Expected::Impossible,
        ),
        case(
            "whole frames cannot be sent",
            Probe::Attempt(ForbiddenAction::PacketSocket),
            Expected::Impossible,
        ),
        case(
            "SCTP cannot be spoken",
            Probe::Attempt(ForbiddenAction::SctpSocket),
            Expected::Impossible,
        ),
        case(
            "loopback is the only interface",
            Probe::Attempt(ForbiddenAction::OtherInterface),
            Expected::Impossible,
        ),
    ]
}

/// Where clouds keep credentials, where engines listen, and where neighbours usually are.
fn places() -> Vec<Case> {
    const ENGINE: u16 = 2375;
    let denied = |name, address: [u8; 4]| {
        let address = Ipv4Addr::from(address);
        let probe = get(address.to_string(), Some((address, HTTP).into()));
        Case::new(Class::Places, name, probe, Expected::Denied)
    };
    vec![
        denied("the metadata service is denied", [169, 254, 169, 254]),
        denied("the metadata service of containers is denied", [169, 254, 170, 2]),
        denied("a private network (10.0.0.0/8) is denied", [10, 0, 0, 1]),
        denied("a private network (172.16.0.0/12) is denied", [172, 17, 0, 1]),
        denied("a private network (192.168.0.0/16) is denied", [192, 168, 0, 1]),
        denied("a shared network (100.64.0.0/10) is denied", [100, 64, 0, 1]),
        Case::new(
            Class::Places,
            "no engine answers on the bridge",
            Probe::Connect((Ipv4Addr::new(172, 17, 0, 1), ENGINE).into()),
            Expected::Nothing,
        ),
    ]
}

fn rebinding(stage: &Stage) -> Vec<Case> {
    let case = |name, host| Case::new(Class::Rebinding, name, get(host, None), Expected::Denied);
    let own = stage.own().map(|own| {
        let host = format!("{}:{}", name("own"), own.port());
        case("an allowed name does not lead to this machine", host)
    });
    let mut cases = vec![
        case(
            "an allowed name does not lead to the metadata service",
            name("metadata"),
        ),
        case(
            "an allowed name does not lead to a private network",
            name("private"),
        ),
    ];
    cases.extend(own);
    cases
}

fn disagreement() -> Vec<Case> {
    let case = |name, to: SocketAddr, bytes: Vec<u8>| {
        Case::new(
            Class::Disagreement,
            name,
            say(Carrier::Tcp, to, bytes),
            Expected::Refusal,
        )
    };
    let (allowed, denied) = (name("allowed"), name("denied"));
    let http = |text: String| text.into_bytes();
    let (web, tls) = ((ELSEWHERE, HTTP).into(), (ELSEWHERE, HTTPS).into());
    vec![
        case("TLS without a name is refused", tls, wire::hello(None)),
        case(
            "TLS with an address for a name is refused",
            tls,
            wire::hello(Some("192.0.2.1")),
        ),
        case(
            "what is not TLS is refused where TLS is spoken",
            tls,
            http(format!("GET / HTTP/1.1\r\nhost: {allowed}\r\n\r\n")),
        ),
        case(
            "a request for two hosts is refused",
            web,
            http(format!(
                "GET / HTTP/1.1\r\nhost: {allowed}\r\nhost: {denied}\r\n\r\n"
            )),
        ),
        case(
            "a request for no host is refused",
            web,
            http("GET / HTTP/1.1\r\n\r\n".to_owned()),
        ),
        case(
            "a request whose line names another host is refused",
            web,
            http(format!(
                "GET http://{denied}/ HTTP/1.1\r\nhost: {allowed}\r\n\r\n"
            )),
        ),
        case(
            "a request with two lengths is refused",
            web,
            http(format!(
                "POST / HTTP/1.1\r\nhost: {allowed}\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            )),
        ),
        case(
            "a tunnel is refused where none is offered",
            web,
            http(format!(
                "CONNECT {allowed}:443 HTTP/1.1\r\nhost: {allowed}\r\n\r\n"
            )),
        ),
    ]
}

fn matching() -> Vec<Case> {
    let case = |case_name, host| Case::new(Class::Matching, case_name, lookup(host), Expected::NoSuchName);
    vec![
        case(
            "a longer label is another name",
            format!("not{}", name("allowed")),
        ),
        case(
            "an allowed name as a label is another name",
            format!("{}.test", name("allowed")),
        ),
        case(
            "what is below an allowed name is another name",
            format!("below.{}", name("allowed")),
        ),
        case("a wildcard is not for its root", name("wild")),
        case("a wildcard is for one label", name("two.labels.wild")),
        case(
            "a name that only looks the same is another",
            name("xn--llowed-8ve"),
        ),
    ]
}

fn privileges(stage: &Stage) -> Vec<Case> {
    let case = |name, deed| {
        Case::new(
            Class::Privileges,
            name,
            Probe::Attempt(deed),
            Expected::Impossible,
        )
    };
    let find = |path: &str| ForbiddenAction::Find(path.to_owned());
    vec![
        case("the firewall cannot be opened", ForbiddenAction::OpenFirewall),
        case("nothing can be mounted", ForbiddenAction::Mount("/tmp")),
        case("no network of its own can be made", ForbiddenAction::LeaveNetwork),
        case(
            "nobody becomes root in a user namespace",
            ForbiddenAction::LeaveUser,
        ),
        case("the engine's socket is not there", find("/var/run/docker.sock")),
        case(
            "the engine's socket is not at its other place",
            find("/run/docker.sock"),
        ),
        case("a file of this machine is not there", find(&stage.marker())),
        case(
            "a file of this machine is not there through the first process",
            ForbiddenAction::Find(format!("/proc/1/root{}", stage.marker())),
        ),
        case(
            "what is run when a program crashes cannot be chosen",
            ForbiddenAction::Overwrite("/proc/sys/kernel/core_pattern"),
        ),
        case(
            "what is run when a group of processes is empty cannot be chosen",
            ForbiddenAction::Overwrite("/sys/fs/cgroup/release_agent"),
        ),
        case(
            "the kernel takes no command",
            ForbiddenAction::Overwrite("/proc/sysrq-trigger"),
        ),
        case("memory is not written to", ForbiddenAction::Overwrite("/dev/mem")),
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mount() -> Case {
        let probe = Probe::Attempt(ForbiddenAction::Mount("/tmp"));
        Case::new(
            Class::Privileges,
            "nothing can be mounted",
            probe,
            Expected::Impossible,
        )
    }

    #[rstest]
    #[case::refused("forbidden", &[], Verdict::Enforced, "no capability")]
    #[case::done("done", &[], Verdict::Open, "tried: dare mount /tmp; seen: done")]
    #[case::not_carried_out("failed no such deed", &[], Verdict::Open, "seen: failed no such deed")]
    #[case::heard_outside("forbidden", &["heard at 192.0.2.1:9"], Verdict::Open, "heard at 192.0.2.1:9")]
    fn an_attack_has_failed_when_it_was_seen_to_fail_and_nobody_heard(
        #[case] line: &str,
        #[case] heard: &[&str],
        #[case] verdict: Verdict,
        #[case] reason: &str,
    ) {
        let heard: Vec<String> = heard.iter().map(ToString::to_string).collect();
        let tried = mount().judge(&Seen::parse(line), &heard);
        assert_eq!(tried.verdict, verdict);
        assert!(tried.reason.contains(reason), "{tried:?}");
    }

    #[tokio::test]
    async fn every_attack_has_a_name_of_its_own() {
        let cases = cases(&Stage::set().await.unwrap());
        let mut names: Vec<(&str, String)> = cases
            .iter()
            .map(|case| (case.check.name, case.check.probe.to_string()))
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cases.len());
    }
}
