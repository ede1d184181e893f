//! What can go wrong with a session.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::guest::frame::FrameError;

/// Why a session cannot be used, or can no longer be used. Every command that ran gets the same one.
#[derive(Clone, Debug, Error)]
pub enum SessionError {
    /// The program at the other end is not the guest of this ralph.
    #[error("the guest in the sandbox has version {theirs:016x}, this ralph speaks with {ours:016x}")]
    Version {
        /// The version it named.
        theirs: u64,
        /// The version of the guest in this ralph.
        ours: u64,
    },
    /// The stream broke or ended, or what came over it makes no sense.
    #[error("the session with the guest in the sandbox is lost")]
    Lost {
        /// How that showed.
        source: Arc<io::Error>,
    },
    /// The guest did not say what it must have said by now: it was stopped, or whatever carries the stream hangs.
    #[error("the guest in the sandbox has not answered for {after:?}")]
    Silent {
        /// How long it was waited for.
        after: Duration,
    },
}

impl SessionError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Version { .. } => Some("remove the sandbox; a new one gets the guest of this ralph"),
            Self::Lost { .. } | Self::Silent { .. } => None,
        }
    }

    /// What came over the stream is not what a guest says.
    pub(super) fn nonsense(what: &'static str) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, what).into()
    }
}

impl From<io::Error> for SessionError {
    fn from(source: io::Error) -> Self {
        Self::Lost {
            source: Arc::new(source),
        }
    }
}

impl From<FrameError> for SessionError {
    fn from(source: FrameError) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, source).into()
    }
}
