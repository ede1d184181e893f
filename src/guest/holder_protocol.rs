//! The protocol between ralph and the holder of a sealed sandbox's network. Compiled into ralph and into the guest.

use std::fmt;
use std::net::SocketAddr;

/// The holder's socket, in the directory that it shares with ralph.
pub(crate) const SOCKET: &str = "holder";

/// A request from ralph to the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HolderRequest {
    /// Seal the network namespace: set the firewall, and make every IPv4 address local.
    Seal {
        /// In the format of `iptables-save`, for IPv4 and IPv6 alike.
        firewall: String,
    },
    /// Open listeners and pass them to ralph, in this order.
    Listen {
        listeners: Vec<(ListenerTransport, SocketAddr)>,
    },
    /// Describe the state of the namespace, and change nothing.
    Describe,
}

/// The transport protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerTransport {
    Tcp,
    Udp,
}

impl fmt::Display for ListenerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// The holder's response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HolderResponse {
    /// The request succeeded. Contains the state of the namespace, as the kernel reports it.
    Done(String),
    /// The request failed, for this reason.
    Failed(String),
}

impl HolderRequest {
    pub(crate) fn parse(text: &str) -> Result<Self, HolderProtocolError> {
        let listener = |line: &str| {
            let (transport, address) = match line.split_once(' ')? {
                ("tcp", address) => (ListenerTransport::Tcp, address),
                ("udp", address) => (ListenerTransport::Udp, address),
                _ => return None,
            };
            Some((transport, address.parse().ok()?))
        };
        match text.split_once('\n') {
            Some(("raise", firewall)) => Ok(Self::Seal {
                firewall: firewall.to_owned(),
            }),
            Some(("listen", lines)) => {
                let listeners: Option<_> = lines.lines().map(listener).collect();
                let listeners = listeners.ok_or(HolderProtocolError)?;
                Ok(Self::Listen { listeners })
            }
            Some(("describe", "")) => Ok(Self::Describe),
            _ => Err(HolderProtocolError),
        }
    }
}

impl fmt::Display for HolderRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seal { firewall } => write!(f, "raise\n{firewall}"),
            Self::Listen { listeners } => {
                writeln!(f, "listen")?;
                let mut listeners = listeners.iter();
                listeners.try_for_each(|(transport, address)| writeln!(f, "{transport} {address}"))
            }
            Self::Describe => writeln!(f, "describe"),
        }
    }
}

impl HolderResponse {
    pub(crate) fn parse(text: &str) -> Result<Self, HolderProtocolError> {
        match text.split_once('\n') {
            Some(("done", state)) => Ok(Self::Done(state.to_owned())),
            Some(("failed", reason)) => Ok(Self::Failed(reason.to_owned())),
            _ => Err(HolderProtocolError),
        }
    }
}

impl fmt::Display for HolderResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(state) => write!(f, "done\n{state}"),
            Self::Failed(reason) => write!(f, "failed\n{reason}"),
        }
    }
}

/// A malformed request or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderProtocolError;

impl fmt::Display for HolderProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed message between ralph and the network holder")
    }
}

impl std::error::Error for HolderProtocolError {}
