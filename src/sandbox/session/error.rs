//! Why a warm session failed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::guest::frame::FrameError;

/// Why a warm session cannot be used, or cannot be used any more. All running commands get the same error.
#[derive(Clone, Debug, Error)]
pub enum SessionError {
    /// The guest belongs to another version of ralph.
    #[error("the guest in the sandbox has version {theirs:016x}, but this ralph needs {ours:016x}")]
    Version {
        /// The version in its hello.
        theirs: u64,
        /// The version of the guest in this ralph.
        ours: u64,
    },
    /// The stream broke or ended, or the guest violated the protocol.
    #[error("lost the connection to the guest in the sandbox")]
    Lost {
        /// The I/O or protocol error.
        source: Arc<io::Error>,
    },
    /// The guest did not reply in time: it was stopped, or its stream hangs.
    #[error("the guest in the sandbox did not reply within {after:?}")]
    Silent {
        /// The timeout.
        after: Duration,
    },
}

impl SessionError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Version { .. } => Some("remove the sandbox; a new sandbox gets the guest of this ralph"),
            Self::Lost { .. } | Self::Silent { .. } => None,
        }
    }

    /// The guest violated the protocol.
    pub(super) fn protocol(message: &'static str) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, message).into()
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
