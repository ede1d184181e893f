//! Probes as the guest receives them, and their results as the guest reports them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The DNS response code of a name that does not exist.
const NXDOMAIN: u8 = 3;

/// Something that the guest tries from inside a sandbox. Its `Display` is the line that the guest reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Open a TCP connection.
    Connect(SocketAddr),
    /// Send a datagram.
    Send(SocketAddr),
    /// Resolve a name.
    Lookup {
        /// The name.
        name: String,
        /// The DNS server. `None` is the one that every program uses.
        server: Option<IpAddr>,
    },
    /// Send a plain HTTP request.
    Get {
        /// The host that the request names.
        host: String,
        /// The address to connect to. `None` is the address of the host.
        at: Option<SocketAddr>,
    },
    /// Send bytes and report the answer.
    Exchange {
        /// The transport.
        transport: ProbeTransport,
        /// The destination.
        to: SocketAddr,
        /// What to send.
        bytes: Vec<u8>,
    },
    /// Send bytes over TCP in several parts, with a pause after each, and report the answer.
    Trickle {
        /// The destination.
        to: SocketAddr,
        /// What to send.
        parts: Vec<Vec<u8>>,
    },
    /// Send a plain HTTP request, and follow the redirect that is the response.
    Follow {
        /// The host and port of the first request.
        host: String,
        /// Its path.
        path: String,
    },
    /// Send an ICMP echo request.
    Echo(Ipv4Addr),
    /// Open a socket of this family and protocol. Nothing is sent.
    Socket {
        /// The address family, as the kernel numbers them.
        family: u32,
        /// The protocol of the family.
        protocol: u32,
    },
    /// Set up an `io_uring`.
    IoUring,
    /// Try an action that needs a privilege, for example `mount /tmp`. The guest knows the actions.
    Attempt(String),
}

/// The transport of [`Probe::Exchange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTransport {
    /// A TCP connection.
    Tcp,
    /// A UDP datagram.
    Udp,
}

impl Probe {
    /// Whether the answer to this DNS query is `NXDOMAIN`. Over TCP, a length precedes the message.
    pub(super) fn is_nxdomain(&self, answer: &[u8]) -> bool {
        let flags = match self {
            Self::Exchange {
                transport: ProbeTransport::Tcp,
                ..
            } => answer.get(5),
            _ => answer.get(3),
        };
        flags.is_some_and(|flags| flags & 0xf == NXDOMAIN)
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(address) => write!(f, "connect {address}"),
            Self::Send(address) => write!(f, "send {address}"),
            Self::Lookup { name, server: None } => write!(f, "lookup {name}"),
            Self::Lookup {
                name,
                server: Some(server),
            } => write!(f, "lookup {name} {server}"),
            Self::Get { host, at: None } => write!(f, "get {host}"),
            Self::Get { host, at: Some(at) } => write!(f, "get {host} {at}"),
            Self::Exchange { transport, to, bytes } => {
                let transport = match transport {
                    ProbeTransport::Tcp => "tcp",
                    ProbeTransport::Udp => "udp",
                };
                write!(f, "say {transport} {to} {}", to_hex(bytes))
            }
            Self::Trickle { to, parts } => {
                let parts: Vec<String> = parts.iter().map(|part| to_hex(part)).collect();
                write!(f, "say tcp {to} {}", parts.join(" "))
            }
            Self::Follow { host, path } => write!(f, "follow {host} {path}"),
            Self::Echo(address) => write!(f, "echo {address}"),
            Self::Socket { family, protocol } => write!(f, "socket {family} {protocol}"),
            Self::IoUring => f.write_str("io-uring"),
            Self::Attempt(action) => write!(f, "attempt {action}"),
        }
    }
}

/// The result of a probe, as the guest reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The connection was refused at once.
    Refused,
    /// There was no route, at once.
    Unreachable,
    /// No answer arrived in time.
    Silent,
    /// An answer arrived.
    Answered,
    /// The name does not exist.
    NoSuchName,
    /// The name has this address.
    Address(String),
    /// An HTTP response arrived.
    Http {
        /// The status code.
        status: u16,
        /// The body.
        text: String,
    },
    /// These bytes arrived. Empty if the connection was closed.
    Received(Vec<u8>),
    /// The system does not permit it.
    Forbidden,
    /// The seccomp profile refuses it.
    Filtered,
    /// The thing does not exist.
    Absent,
    /// It succeeded.
    Done,
    /// Anything else, usually an error message.
    Other(String),
}

impl ProbeResult {
    /// Parses a line from the guest.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        Self::parse_known(line).unwrap_or_else(|| Self::Other(line.to_owned()))
    }

    fn parse_known(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match (word, rest) {
            ("at", address) if !address.is_empty() => Self::Address(address.to_owned()),
            ("received", hex) => Self::Received(from_hex(hex)?),
            ("http", rest) => {
                let (status, text) = rest.split_once(' ').unwrap_or((rest, ""));
                Self::Http {
                    status: status.parse().ok()?,
                    text: text.to_owned(),
                }
            }
            ("refused", "") => Self::Refused,
            ("unreachable", "") => Self::Unreachable,
            ("silent", "") => Self::Silent,
            ("answered", "") => Self::Answered,
            ("no-such-name", "") => Self::NoSuchName,
            ("forbidden", "") => Self::Forbidden,
            ("filtered", "") => Self::Filtered,
            ("absent", "") => Self::Absent,
            ("done", "") => Self::Done,
            _ => return None,
        })
    }
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("refused"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Silent => f.write_str("no answer in time"),
            Self::Answered => f.write_str("an answer"),
            Self::NoSuchName => f.write_str("no such name"),
            Self::Address(address) => write!(f, "the address {address}"),
            Self::Http { status, text } => write!(f, "HTTP {status} {text:?}"),
            Self::Received(bytes) => f.write_str(&describe(bytes)),
            Self::Forbidden => f.write_str("not permitted"),
            Self::Filtered => f.write_str("filtered"),
            Self::Absent => f.write_str("does not exist"),
            Self::Done => f.write_str("succeeded"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Whether these bytes are how the gateway refuses: a closed connection, a TLS alert, or an HTTP status.
pub(super) fn is_refusal(bytes: &[u8]) -> bool {
    const ALERT: u8 = 21;
    let statuses: [&[u8]; 4] = [b"400 ", b"403 ", b"407 ", b"421 "];
    match bytes.strip_prefix(b"HTTP/1.1 ") {
        Some(rest) => statuses.iter().any(|status| rest.starts_with(status)),
        None => bytes.first().is_none_or(|first| *first == ALERT),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.concat()
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// The first line of an answer, or a summary if it is not text.
fn describe(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match std::str::from_utf8(line) {
        Ok("") => "the end of the connection".to_owned(),
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ if is_refusal(bytes) => "a TLS alert".to_owned(),
        _ => format!("an answer of length {}", bytes.len()),
    }
}
