//! What ralph and the holder say to each other. Compiled into both.

use std::fmt;
use std::net::SocketAddr;

/// The holder's socket, in the directory that it shares with ralph.
pub(crate) const SOCKET: &str = "holder";

/// What ralph wants of the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// To raise the walls: the firewall, and every address its own.
    Raise {
        /// As `iptables-save` writes it, for IPv4 and IPv6 alike.
        firewall: String,
    },
    /// To hand over listeners.
    Listen {
        /// In the order in which they are handed over.
        listeners: Vec<(Transport, SocketAddr)>,
    },
    /// To tell what is in force.
    Tell,
}

/// What a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "tcp" => Some(Self::Tcp),
            "udp" => Some(Self::Udp),
            _ => None,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was done; this is in force now.
    Done(String),
    /// It was not, for this reason.
    Failed(String),
}

impl Order {
    pub(crate) fn parse(text: &str) -> Result<Self, NotUnderstood> {
        let listener = |line: &str| {
            let (transport, address) = line.split_once(' ').ok_or(NotUnderstood)?;
            let transport = Transport::parse(transport).ok_or(NotUnderstood)?;
            Ok((transport, address.parse().map_err(|_| NotUnderstood)?))
        };
        match text.split_once('\n') {
            Some(("raise", firewall)) => Ok(Self::Raise {
                firewall: firewall.to_owned(),
            }),
            Some(("listen", lines)) => Ok(Self::Listen {
                listeners: lines.lines().map(listener).collect::<Result<_, _>>()?,
            }),
            Some(("tell", "")) => Ok(Self::Tell),
            _ => Err(NotUnderstood),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raise { firewall } => write!(f, "raise\n{firewall}"),
            Self::Listen { listeners } => {
                writeln!(f, "listen")?;
                let mut listeners = listeners.iter();
                listeners.try_for_each(|(transport, address)| writeln!(f, "{transport} {address}"))
            }
            Self::Tell => writeln!(f, "tell"),
        }
    }
}

impl Outcome {
    pub(crate) fn parse(text: &str) -> Result<Self, NotUnderstood> {
        match text.split_once('\n') {
            Some(("done", state)) => Ok(Self::Done(state.to_owned())),
            Some(("failed", reason)) => Ok(Self::Failed(reason.to_owned())),
            _ => Err(NotUnderstood),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(state) => write!(f, "done\n{state}"),
            Self::Failed(reason) => write!(f, "failed\n{reason}"),
        }
    }
}

/// What was said is neither an order nor what came of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotUnderstood;

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was said between ralph and the holder of a network makes no sense")
    }
}

impl std::error::Error for NotUnderstood {}
