//! Errors of stored credentials and logins.

use std::io;
use std::path::Path;

use thiserror::Error;

use super::CredentialKind;

/// A stored credential cannot be read or written.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct CredentialError {
    message: String,
    hint: Option<String>,
    /// The cause. It never contains the credential.
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl CredentialError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    /// For `map_err`: an I/O error with its operation and file.
    pub(super) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let error = Self::new(format!("cannot {operation} `{}`", path.display()));
        move |source| error.with_source(source)
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// There is no credential to send.
#[derive(Debug, Error)]
pub enum LoginError {
    /// Nothing is stored.
    #[error("{0} is not stored")]
    Missing(CredentialKind),
    /// It has expired and cannot be renewed.
    #[error("{0} has expired")]
    Expired(CredentialKind),
    /// The token server rejected the refresh token.
    #[error("cannot renew {kind}: the token server rejected it (HTTP {status})")]
    Refused {
        /// The login.
        kind: CredentialKind,
        /// The HTTP status.
        status: u16,
    },
    /// An earlier renewal used the refresh token and was interrupted before its result was stored.
    #[error("cannot renew {0}: an interrupted renewal already used its refresh token")]
    UsedUp(CredentialKind),
    /// The token server cannot be reached, or its response is not one of a token server.
    #[error("cannot renew {kind}: the token server is unavailable")]
    Unavailable {
        /// The login.
        kind: CredentialKind,
        /// The cause.
        source: reqwest::Error,
    },
    /// The stored credential cannot be read or written.
    #[error(transparent)]
    Stored(#[from] CredentialError),
}

impl LoginError {
    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing(kind) | Self::Expired(kind) | Self::Refused { kind, .. } | Self::UsedUp(kind) => {
                Some(kind.store_hint())
            }
            Self::Unavailable { .. } => {
                Some("check the network connection of the host, then try again".to_owned())
            }
            Self::Stored(error) => error.hint().map(str::to_owned),
        }
    }
}
