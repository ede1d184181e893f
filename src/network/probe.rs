//! What is tried from inside a sandbox before anything of the agent's runs in it, and what must be seen.
//!
//! Silence alone proves nothing: whoever carries these out first shows that each canary can be heard from outside, and
//! the beacon shows that the sandbox's network leads to its own gateway.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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
/// What DNS answers about a name that there is not.
const NXDOMAIN: u8 = 3;

/// Something that is tried from inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A TCP connection.
    Connect(SocketAddr),
    /// A datagram.
    Send(SocketAddr),
    /// A name, asked of the server that every program asks, or of another.
    Lookup {
        /// The name.
        name: String,
        /// The other server.
        server: Option<IpAddr>,
    },
    /// A request over plain HTTP, to where the host's name leads, or to an address.
    Get {
        /// What the request says it is for.
        host: String,
        /// The address.
        at: Option<SocketAddr>,
    },
    /// Any bytes, and what is answered.
    Say {
        /// How they are carried.
        over: Carrier,
        /// Where to.
        to: SocketAddr,
        /// What is said.
        bytes: Vec<u8>,
    },
    /// Something that takes a privilege.
    Dare(Deed),
}

/// What carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A connection.
    Tcp,
    /// A datagram.
    Udp,
}

/// Something that no program in a sandbox should be able to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Let every packet pass.
    OpenFirewall,
    /// Mount something there.
    Mount(&'static str),
    /// Make a network of its own, in which it could do as it likes.
    LeaveNetwork,
    /// Become root in a user namespace of its own.
    LeaveUser,
    /// Open a socket for whole packets.
    RawSocket,
    /// Open a socket for whole frames.
    PacketSocket,
    /// Open a socket for SCTP.
    SctpSocket,
    /// Find an interface beside loopback.
    OtherInterface,
    /// Find a file that is not the sandbox's.
    Find(String),
    /// Write to a file that steers the kernel.
    Overwrite(&'static str),
}

/// What was seen of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was refused at once.
    Refused,
    /// There was no way, at once.
    Unreachable,
    /// Nothing came back in time.
    Silent,
    /// Somebody answered.
    Answered,
    /// There is no such name.
    NoSuchName,
    /// The name has an address.
    At(String),
    /// HTTP was spoken.
    Http {
        /// The status.
        status: u16,
        /// What was said.
        text: String,
    },
    /// These bytes were answered; none when the connection was ended.
    Heard(Vec<u8>),
    /// The system does not permit it.
    Forbidden,
    /// There is no such thing.
    Absent,
    /// It was done.
    Done,
    /// Anything else.
    Other(String),
}

/// What must be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// That nothing is there, at once.
    Nothing,
    /// That there is no such name.
    NoSuchName,
    /// That nobody but the gateway was asked: its own name has an address, or nobody is there at once.
    GatewayAlone,
    /// That the gateway denies it.
    Denied,
    /// What the sandbox's own gateway says of itself.
    Beacon(String),
    /// That the gateway refuses what was said, in words of HTTP or TLS, or by ending the connection.
    Refusal,
    /// That the gateway's DNS knows no such name, or nobody is there at once.
    Unknown,
    /// That it cannot be done.
    Impossible,
}

/// A probe and what must be seen of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it shows.
    pub name: &'static str,
    /// What is tried.
    pub probe: Probe,
    /// What must be seen.
    pub expected: Expected,
}

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

impl Check {
    fn new(name: &'static str, probe: Probe, expected: Expected) -> Self {
        Self {
            name,
            probe,
            expected,
        }
    }

    /// What is wrong, when it is not what must be seen.
    #[must_use]
    pub fn failure(&self, seen: &Seen) -> Option<ProbeFailure> {
        let holds = match (&self.expected, seen) {
            (Expected::Nothing | Expected::Unknown, Seen::Refused | Seen::Unreachable)
            | (Expected::NoSuchName, Seen::NoSuchName)
            | (Expected::Refusal, Seen::Refused)
            | (Expected::Impossible, Seen::Forbidden | Seen::Absent)
            | (Expected::GatewayAlone, Seen::At(_) | Seen::Refused | Seen::Unreachable)
            | (Expected::Denied, Seen::Refused | Seen::Unreachable | Seen::Http { status: 403, .. }) => true,
            (Expected::Refusal, Seen::Heard(bytes)) => is_refusal(bytes),
            (Expected::Unknown, Seen::Heard(bytes)) => self.probe.is_told_of_no_such_name(bytes),
            (Expected::Beacon(says), Seen::Http { status: 200, text }) => says == text,
            _ => false,
        };
        (!holds).then(|| ProbeFailure {
            check: self.name,
            tried: self.probe.to_string(),
            seen: seen.to_string(),
        })
    }
}

/// Whether this is how the gateway refuses: by an end, an alert of TLS, or a status of HTTP.
fn is_refusal(bytes: &[u8]) -> bool {
    const ALERT: u8 = 21;
    let statuses: [&[u8]; 4] = [b"400 ", b"403 ", b"407 ", b"421 "];
    match bytes.strip_prefix(b"HTTP/1.1 ") {
        Some(rest) => statuses.iter().any(|status| rest.starts_with(status)),
        None => bytes.first().is_none_or(|first| *first == ALERT),
    }
}

/// A probe that saw what must not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not shown: {check} (tried: {tried}; seen: {seen})")]
pub struct ProbeFailure {
    /// What it should have shown.
    pub check: &'static str,
    /// What was tried.
    pub tried: String,
    /// What was seen.
    pub seen: String,
}

impl Probe {
    /// Whether a query was answered so. Over TCP, its length comes first.
    fn is_told_of_no_such_name(&self, answer: &[u8]) -> bool {
        let flags = match self {
            Self::Say {
                over: Carrier::Tcp, ..
            } => answer.get(5),
            _ => answer.get(3),
        };
        flags.is_some_and(|flags| flags & 0xf == NXDOMAIN)
    }

    fn get(host: &str, at: Option<SocketAddr>) -> Self {
        Self::Get {
            host: host.to_owned(),
            at,
        }
    }
}

/// As the guest takes it.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = |address: Option<String>| address.map_or(String::new(), |address| format!(" {address}"));
        match self {
            Self::Connect(address) => write!(f, "connect {address}"),
            Self::Send(address) => write!(f, "send {address}"),
            Self::Lookup { name, server } => {
                write!(
                    f,
                    "lookup {name}{}",
                    more(server.map(|server| server.to_string()))
                )
            }
            Self::Get { host, at } => write!(f, "get {host}{}", more(at.map(|at| at.to_string()))),
            Self::Say { over, to, bytes } => {
                let over = match over {
                    Carrier::Tcp => "tcp",
                    Carrier::Udp => "udp",
                };
                write!(f, "say {over} {to} ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Dare(deed) => write!(f, "dare {deed}"),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenFirewall => f.write_str("open-firewall"),
            Self::Mount(target) => write!(f, "mount {target}"),
            Self::LeaveNetwork => f.write_str("leave-network"),
            Self::LeaveUser => f.write_str("leave-user"),
            Self::RawSocket => f.write_str("raw-socket"),
            Self::PacketSocket => f.write_str("packet-socket"),
            Self::SctpSocket => f.write_str("sctp-socket"),
            Self::OtherInterface => f.write_str("other-interface"),
            Self::Find(path) => write!(f, "find {path}"),
            Self::Overwrite(path) => write!(f, "overwrite {path}"),
        }
    }
}

impl Seen {
    /// Reads a line of the guest's.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        match line.split_once(' ') {
            None => match line {
                "refused" => Self::Refused,
                "unreachable" => Self::Unreachable,
                "silent" => Self::Silent,
                "answered" => Self::Answered,
                "no-such-name" => Self::NoSuchName,
                "forbidden" => Self::Forbidden,
                "absent" => Self::Absent,
                "done" => Self::Done,
                other => Self::Other(other.to_owned()),
            },
            Some(("at", address)) => Self::At(address.to_owned()),
            Some(("heard", hex)) => from_hex(hex).map_or_else(|| Self::Other(line.to_owned()), Self::Heard),
            Some(("http", rest)) => {
                let (status, text) = rest.split_once(' ').unwrap_or((rest, ""));
                status.parse().map_or_else(
                    |_| Self::Other(line.to_owned()),
                    |status| Self::Http {
                        status,
                        text: text.to_owned(),
                    },
                )
            }
            Some(_) => Self::Other(line.to_owned()),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("refused"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Silent => f.write_str("nothing in time"),
            Self::Answered => f.write_str("an answer"),
            Self::NoSuchName => f.write_str("no such name"),
            Self::At(address) => write!(f, "the address {address}"),
            Self::Http { status, text } => write!(f, "HTTP {status} {text:?}"),
            Self::Heard(bytes) => write!(f, "{}", in_words(bytes)),
            Self::Forbidden => f.write_str("not permitted"),
            Self::Absent => f.write_str("not there"),
            Self::Done => f.write_str("done"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// The first line of an answer, or what it is made of.
fn in_words(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match std::str::from_utf8(line) {
        Ok("") => "the end of the connection".to_owned(),
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ if is_refusal(bytes) => "an alert of TLS".to_owned(),
        _ => format!("an answer of {} bytes", bytes.len()),
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
            Probe::Say { .. } | Probe::Dare(_) => unreachable!("{probe:?} is for attacks"),
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

    #[rstest]
    #[case::a_status_that_refuses("HTTP/1.1 403 Forbidden\r\n", Expected::Refusal, true)]
    #[case::a_status_that_does_not("HTTP/1.1 200 OK\r\n", Expected::Refusal, false)]
    #[case::an_alert("\u{15}\u{3}\u{3}", Expected::Refusal, true)]
    #[case::a_hello("\u{16}\u{3}\u{3}", Expected::Refusal, false)]
    #[case::an_end("", Expected::Refusal, true)]
    #[case::no_such_name("re\u{1}\u{3}", Expected::Unknown, true)]
    #[case::a_name("re\u{1}\u{0}", Expected::Unknown, false)]
    fn an_answer_is_told_from_a_refusal(
        #[case] answer: &str,
        #[case] expected: Expected,
        #[case] holds: bool,
    ) {
        let probe = Probe::Say {
            over: Carrier::Udp,
            to: "192.0.2.1:53".parse().unwrap(),
            bytes: vec![0, 255],
        };
        assert_eq!(probe.to_string(), "say udp 192.0.2.1:53 00ff");
        let hex: Vec<String> = answer.bytes().map(|byte| format!("{byte:02x}")).collect();
        let check = Check::new("it is refused", probe, expected);
        assert_eq!(
            check
                .failure(&Seen::parse(&format!("heard {}", hex.concat())))
                .is_none(),
            holds
        );
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
