//! What a policy says, and by which line.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use super::address::AddressClass;
use super::host::HostName;

/// A line of a policy: what it says, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    text: String,
    /// Empty where nobody said.
    place: String,
}

impl Line {
    /// A line with its place, for example `ralph.toml:3:12`; without one when `place` is empty.
    #[must_use]
    pub fn new(text: &str, place: &str) -> Self {
        Self {
            text: text.to_owned(),
            place: place.to_owned(),
        }
    }

    /// What it says.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where it stands; `None` when it was made by a program.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        (!self.place.is_empty()).then_some(self.place.as_str())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.text)?;
        self.place().map_or(Ok(()), |place| write!(f, " ({place})"))
    }
}

/// What a policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass, by this line.
    Allowed(Arc<Line>),
    /// It may not.
    Denied(Denial),
}

impl Verdict {
    /// Whether it may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Allowed(_) => true,
            Self::Denied(_) => false,
        }
    }
}

impl Denial {
    /// The line that it comes from, where it comes from one.
    #[must_use]
    pub fn line(&self) -> Option<&Arc<Line>> {
        match self {
            Self::Line(line)
            | Self::Mode(line)
            | Self::Port { line, .. }
            | Self::Request { line, .. }
            | Self::Unseen(line) => Some(line),
            Self::NotListed
            | Self::BareAddress
            | Self::Address { .. }
            | Self::Mismatch { .. }
            | Self::Injected(_)
            | Self::Unclear(_) => None,
        }
    }
}

/// Why something may not pass.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// A line denies it.
    #[error("denied by {0}")]
    Line(Arc<Line>),
    /// The policy denies everything.
    #[error("denied by {0}")]
    Mode(Arc<Line>),
    /// No line allows it.
    #[error("host not in policy")]
    NotListed,
    /// The host is allowed on other ports only.
    #[error("port {port} not in policy; {line} does not cover it")]
    Port {
        /// The port.
        port: u16,
        /// A line that allows the host.
        line: Arc<Line>,
    },
    /// The host is allowed for other methods or paths only.
    #[error("method or path not in policy; {line} does not cover it")]
    Request {
        /// The narrowest line that would let it through.
        wanted: String,
        /// A line that allows the host.
        line: Arc<Line>,
    },
    /// A line decides by method or path, which cannot be seen here.
    #[error("{0} needs to see the request, and this connection is not inspected")]
    Unseen(Arc<Line>),
    /// A bare address, where names are expected.
    #[error("an address is not in the policy; only names are")]
    BareAddress,
    /// The name leads to an address that no sandbox may reach.
    #[error("{name} is at {address}: {class}")]
    Address {
        /// The name, or the address itself.
        name: String,
        /// The address.
        address: IpAddr,
        /// What is wrong with it.
        class: AddressClass,
    },
    /// Two places that must name the same host do not.
    #[error("{said} was asked for and {meant} is meant")]
    Mismatch {
        /// The name that was judged.
        said: String,
        /// The other one.
        meant: String,
    },
    /// The gateway adds this host's credential, so nothing else may speak to it.
    #[error(
        "the credential of {0} is added by the gateway: its requests go over plain HTTP, never through a tunnel"
    )]
    Injected(HostName),
    /// It cannot be told what is meant: broken, ambiguous, hidden or unauthenticated.
    #[error("{0}")]
    Unclear(&'static str),
}
