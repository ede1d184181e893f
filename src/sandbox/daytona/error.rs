//! Errors of calls to Daytona.

use std::error::Error as StdError;
use std::io;

use thiserror::Error;

use crate::sandbox::{SandboxError, SandboxErrorKind};

/// Why a call to Daytona failed. `call` is the method and path of the call.
#[derive(Debug, Error)]
pub(super) enum DaytonaError {
    /// There was no response, or only a part of one.
    #[error("cannot reach Daytona ({call})")]
    Unreachable { call: String, source: reqwest::Error },
    /// Daytona responded with an error status.
    #[error("Daytona refused the call ({call}): {status}: {message}")]
    Refused {
        call: String,
        status: u16,
        message: String,
    },
    /// The response cannot be decoded.
    #[error("cannot read the response of Daytona ({call})")]
    Response { call: String, source: io::Error },
    /// A sandbox or snapshot is in an unexpected state, or did not reach the expected one in time.
    #[error("{0}")]
    State(String),
    /// The files of a build cannot be stored.
    #[error("cannot send the files of the build to Daytona")]
    Upload {
        source: Box<dyn StdError + Send + Sync>,
        is_transient: bool,
    },
    /// A WebSocket broke.
    #[error("lost the connection to Daytona ({call})")]
    Stream { call: String, source: io::Error },
}

impl DaytonaError {
    pub(super) fn unreachable(call: &str, error: reqwest::Error) -> Self {
        Self::Unreachable {
            call: call.to_owned(),
            source: error.without_url(),
        }
    }

    /// The error for a response that makes no sense.
    pub(super) fn response(call: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Response {
            call: call.into(),
            source: io::Error::other(reason.into()),
        }
    }

    /// The error for files of a build that cannot be sent.
    pub(super) fn upload(reason: impl Into<String>) -> Self {
        Self::Upload {
            source: reason.into().into(),
            is_transient: false,
        }
    }

    /// This error as one of the object store. Its message may contain the request with its credentials, so only the code
    /// and the short text are kept.
    pub(super) fn at_storage(mut self) -> Self {
        if let Self::Refused { message, .. } = &mut self {
            let parts = ["Code", "Message"]
                .iter()
                .filter_map(|name| xml_text(message, name));
            *message = parts.collect::<Vec<_>>().join(": ");
        }
        Self::Upload {
            is_transient: self.is_transient(),
            source: Box::new(self),
        }
    }

    /// The error for the state of a sandbox or snapshot, with Daytona's explanation.
    pub(super) fn state(name: &str, state: &str, reason: Option<String>) -> Self {
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        Self::State(format!("`{name}` is in the state `{state}` at Daytona{reason}"))
    }

    /// The HTTP status of an error response.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the object of the call does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether a later attempt may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Stream { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            Self::Upload { is_transient, .. } => *is_transient,
            Self::Response { .. } | Self::State(_) => false,
        }
    }

    /// Whether the call did not arrive, or was rejected by a rate limit.
    pub(super) fn had_no_effect(&self) -> bool {
        matches!(self, Self::Unreachable { source, .. } if source.is_connect()) || self.status() == Some(429)
    }

    /// The error for one sandbox.
    pub(super) fn for_sandbox(self, sandbox: &str) -> SandboxError {
        let (kind, hint) = (self.kind(), self.hint());
        SandboxError::new(kind, format!("Daytona failed for the sandbox `{sandbox}`"))
            .with_cause(self)
            .with_hint(Some(hint))
    }

    fn kind(&self) -> SandboxErrorKind {
        if self.is_transient() {
            SandboxErrorKind::Unreachable
        } else {
            SandboxErrorKind::Failed
        }
    }

    /// What the user can do next.
    fn hint(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => {
                "check the network and DAYTONA_API_URL, or use the `docker` provider, which needs neither"
            }
            Self::Upload { .. } => {
                "try again; if it stays like that, set `sandbox.registry`, so that ralph builds the image here and pushes it"
            }
            Self::Response { .. } | Self::Refused { status: 404, .. } => {
                "check that DAYTONA_API_URL is the URL of Daytona's API; if it is, try again with `ralph resume`"
            }
            Self::Stream { .. } | Self::Refused { status: 500.., .. } => {
                "Daytona has a problem: wait a while, then run `ralph resume`"
            }
            Self::State(_) => {
                "see the build log in Daytona's dashboard; `--rebuild` makes a snapshot that failed again"
            }
            Self::Refused { status, .. } => match status {
                401 => "set DAYTONA_API_KEY to a valid key; Daytona's dashboard creates one",
                402 | 403 => {
                    "give the key the permissions for sandboxes and snapshots, and check that the organisation is not suspended"
                }
                409 => {
                    "the name is in use: find it with `ralph sandbox ls`, and remove it with `ralph sandbox rm`"
                }
                429 => {
                    "the organisation's limit is reached: wait, remove other sandboxes (`ralph sandbox ls`), or raise the limit"
                }
                _ => "change the request as Daytona's message says, or use another provider",
            },
        }
    }
}

/// The text of the first XML element of this name.
fn xml_text<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(text, _)| text)
}

/// For an operation that concerns no sandbox in particular.
impl From<DaytonaError> for SandboxError {
    fn from(error: DaytonaError) -> Self {
        let (kind, hint) = (error.kind(), error.hint());
        Self::from_cause(kind, error).with_hint(Some(hint))
    }
}
