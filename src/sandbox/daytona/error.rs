//! What can go wrong between ralph and Daytona.

use std::io;

use thiserror::Error;

/// What can go wrong between ralph and Daytona.
#[derive(Debug, Error)]
pub enum DaytonaError {
    /// Nobody answered, or the answer broke off.
    #[error("Daytona does not answer ({call})")]
    Unreachable {
        /// What was asked.
        call: String,
        /// How that showed.
        source: reqwest::Error,
    },
    /// It answered no.
    #[error("Daytona refused ({call}): {status}: {message}")]
    Refused {
        /// What was asked.
        call: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// It answered with something that makes no sense.
    #[error("Daytona's answer cannot be read ({call})")]
    Answer {
        /// What was asked.
        call: String,
        /// What is wrong with the answer.
        source: io::Error,
    },
    /// What was asked for did not come about.
    #[error("Daytona did not bring `{subject}` about: it is in the state `{state}`{}", told(reason.as_deref()))]
    State {
        /// A sandbox or a snapshot.
        subject: String,
        /// The state it stopped in.
        state: String,
        /// What Daytona says about it.
        reason: Option<String>,
    },
    /// A stream broke off.
    #[error("the stream from Daytona broke off ({call})")]
    Stream {
        /// What was asked.
        call: String,
        /// How that showed.
        source: io::Error,
    },
}

impl DaytonaError {
    /// The HTTP status of a refusal.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Answer { .. } | Self::State { .. } | Self::Stream { .. } => None,
        }
    }

    /// Whether what was asked for is not there.
    pub(super) fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether it may pass by itself.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Stream { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            Self::Answer { .. } | Self::State { .. } => false,
        }
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => {
                Some("check the network, and DAYTONA_API_URL if it is set; `--type docker` needs neither")
            }
            Self::Refused { status: 401, .. } => {
                Some("set DAYTONA_API_KEY to a key that is valid; the dashboard of Daytona makes one")
            }
            Self::Refused {
                status: 402 | 403, ..
            } => Some(
                "give the key the permissions for sandboxes and snapshots, and see that the organisation is not suspended",
            ),
            Self::Refused { status: 429, .. } => Some(
                "the organisation's limit is reached: wait, end other sandboxes (`ralph sandbox ls`), or raise the limit",
            ),
            Self::Refused { status: 404, .. } | Self::Answer { .. } => Some(
                "see that DAYTONA_API_URL, if it is set, is the address of Daytona's API; if it is, `ralph resume` tries again",
            ),
            Self::Refused { status: 409, .. } => Some(
                "something of that name is there already: `ralph sandbox ls --type daytona` shows it, `ralph sandbox rm` \
                 removes it",
            ),
            Self::Refused { status: 500.., .. } | Self::Stream { .. } => {
                Some("Daytona is out of order: wait a while, then `ralph resume`")
            }
            Self::State { .. } => Some("the dashboard of Daytona shows the log of the build"),
            Self::Refused { .. } => {
                Some("ask for what Daytona says is possible, or choose another provider with `--type`")
            }
        }
    }
}

fn told(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}
