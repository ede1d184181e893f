//! What is tried from inside, as the guest is told.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

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
    /// An echo request of ICMP.
    Echo(Ipv4Addr),
    /// An action that needs a privilege.
    Attempt(ForbiddenAction),
}

/// What carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A connection.
    Tcp,
    /// A datagram.
    Udp,
}

/// An action that no program in a sandbox should be able to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForbiddenAction {
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

impl Probe {
    /// Whether a query was answered so. Over TCP, its length comes first.
    pub(super) fn is_told_of_no_such_name(&self, answer: &[u8]) -> bool {
        let flags = match self {
            Self::Say {
                over: Carrier::Tcp, ..
            } => answer.get(5),
            _ => answer.get(3),
        };
        flags.is_some_and(|flags| flags & 0xf == NXDOMAIN)
    }

    pub(super) fn get(host: &str, at: Option<SocketAddr>) -> Self {
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
            Self::Echo(address) => write!(f, "echo {address}"),
            Self::Attempt(action) => write!(f, "attempt {action}"),
        }
    }
}

impl fmt::Display for ForbiddenAction {
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
