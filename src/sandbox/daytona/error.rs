//! Errors of calls to Daytona.

use std::io;

use thiserror::Error;

use crate::sandbox::SandboxErrorKind;

/// Why a call to Daytona failed.
#[derive(Debug, Error)]
pub enum DaytonaError {
    /// There was no response, or only a part of one.
    #[error("cannot reach Daytona ({call})")]
    Unreachable {
        /// Method and path of the call.
        call: String,
        /// The error of the HTTP client.
        source: reqwest::Error,
    },
    /// Daytona responded with an error status.
    #[error("Daytona refused the call ({call}): {status}: {message}")]
    Refused {
        /// Method and path of the call.
        call: String,
        /// The HTTP status.
        status: u16,
        /// Daytona's message.
        message: String,
    },
    /// The response cannot be decoded.
    #[error("cannot read the response of Daytona ({call})")]
    Response {
        /// Method and path of the call.
        call: String,
        /// What is wrong with the response.
        source: io::Error,
    },
    /// A sandbox or snapshot is in an unexpected state, or did not reach the expected one in time.
    #[error("`{subject}` is in the state `{state}` at Daytona{}", suffix(reason.as_deref()))]
    State {
        /// The name of the sandbox or snapshot.
        subject: String,
        /// Its last state.
        state: String,
        /// Daytona's explanation.
        reason: Option<String>,
    },
    /// A WebSocket broke.
    #[error("lost the connection to Daytona ({call})")]
    Stream {
        /// Method and path of the call.
        call: String,
        /// The error of the WebSocket.
        source: io::Error,
    },
}

impl DaytonaError {
    /// The HTTP status of an error response.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Response { .. } | Self::State { .. } | Self::Stream { .. } => {
                None
            }
        }
    }

    /// Whether the object of the call does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether a later attempt may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Stream { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            Self::Response { .. } | Self::State { .. } => false,
        }
    }

    pub(super) fn kind(&self) -> SandboxErrorKind {
        if self.is_transient() {
            SandboxErrorKind::Unreachable
        } else {
            SandboxErrorKind::Failed
        }
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unreachable { .. } => {
                "check the network and DAYTONA_API_URL, or use the `docker` provider, which needs neither"
            }
            Self::Refused { status: 401, .. } => {
                "set DAYTONA_API_KEY to a valid key; Daytona's dashboard creates one"
            }
            Self::Refused {
                status: 402 | 403, ..
            } => {
                "give the key the permissions for sandboxes and snapshots, and check that the organisation is not suspended"
            }
            Self::Refused { status: 429, .. } => {
                "the organisation's limit is reached: wait, remove other sandboxes (`ralph sandbox ls`), or raise the limit"
            }
            Self::Refused { status: 404, .. } | Self::Response { .. } => {
                "check that DAYTONA_API_URL is the URL of Daytona's API; if it is, try again with `ralph resume`"
            }
            Self::Refused { status: 409, .. } => {
                "the name is in use: find it with `ralph sandbox ls`, and remove it with `ralph sandbox rm`"
            }
            Self::Refused { status: 500.., .. } | Self::Stream { .. } => {
                "Daytona has a problem: wait a while, then run `ralph resume`"
            }
            Self::State { .. } => "see the build log in Daytona's dashboard",
            Self::Refused { .. } => "change the request as Daytona's message says, or use another provider",
        })
    }
}

fn suffix(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}
