//! The protocol between ralph and the holder of a sealed sandbox's network. Compiled into ralph and into the guest.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// The holder's socket, in the directory that it shares with ralph.
pub(crate) const SOCKET: &str = "holder";

/// The id that the kernel drew when it started.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A request from ralph to the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HolderRequest {
    /// Seal the network namespace: set the firewall, and make every IPv4 address local.
    Seal,
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

impl HolderRequest {
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let listener = |line: &str| {
            let (transport, address) = match line.split_once(' ')? {
                ("tcp", address) => (ListenerTransport::Tcp, address),
                ("udp", address) => (ListenerTransport::Udp, address),
                _ => return None,
            };
            Some((transport, address.parse().ok()?))
        };
        match text.split_once('\n') {
            Some(("raise", "")) => Ok(Self::Seal),
            Some(("listen", lines)) => {
                let listeners: Option<_> = lines.lines().map(listener).collect();
                let listeners = listeners.ok_or_else(malformed)?;
                Ok(Self::Listen { listeners })
            }
            Some(("describe", "")) => Ok(Self::Describe),
            _ => Err(malformed()),
        }
    }
}

impl fmt::Display for HolderRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seal => writeln!(f, "raise"),
            Self::Listen { listeners } => {
                writeln!(f, "listen")?;
                let mut listeners = listeners.iter();
                listeners.try_for_each(|(transport, address)| writeln!(f, "{transport} {address}"))
            }
            Self::Describe => writeln!(f, "describe"),
        }
    }
}

/// Encodes the holder's response: the state of the namespace, as the kernel reports it, or why the request failed.
pub(crate) fn encode_response(response: Result<String, String>) -> String {
    match response {
        Ok(state) => format!("done\n{state}"),
        Err(reason) => format!("failed\n{reason}"),
    }
}

/// Decodes the holder's response.
pub(crate) fn decode_response(text: &str) -> io::Result<Result<String, String>> {
    match text.split_once('\n') {
        Some(("done", state)) => Ok(Ok(state.to_owned())),
        Some(("failed", reason)) => Ok(Err(reason.to_owned())),
        _ => Err(malformed()),
    }
}

fn malformed() -> io::Error {
    io::Error::other("malformed message between ralph and the network holder")
}
