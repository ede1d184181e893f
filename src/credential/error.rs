//! Errors of stored credentials and logins.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::CredentialKind;

/// A stored credential cannot be read or written.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// An operation on a file failed.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Other users can read the file.
    #[error("other users can read the credential in `{}`", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The stored text is not a credential.
    #[error("cannot parse the stored text of {kind}")]
    Unreadable {
        /// The credential.
        kind: CredentialKind,
        /// The cause. It names a position, never the text.
        source: serde_json::Error,
    },
    /// The program of the keychain could not be started.
    #[error("cannot start `{program}`")]
    NoKeychain {
        /// The program.
        program: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The program of the keychain failed.
    #[error("the keychain command `{program}` failed ({status}): {message}")]
    Keychain {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: String,
        /// Its standard error.
        message: String,
    },
}

impl CredentialError {
    /// For `map_err`: an I/O error with its operation and file.
    pub(super) fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }

    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Io { .. } => None,
            Self::Exposed { path } => Some(format!(
                "revoke the credential at its service, run `chmod 600 {}` and store a new one",
                path.display()
            )),
            Self::Unreadable { kind, .. } => Some(format!("store it again: `{}`", kind.store_command())),
            Self::NoKeychain { .. } | Self::Keychain { .. } => Some(
                "unlock the keychain, or store the credential in a file: `ralph token store --file`"
                    .to_owned(),
            ),
        }
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
                Some(format!("store a new one: `{}`", kind.store_command()))
            }
            Self::Unavailable { .. } => {
                Some("check the network connection of the host, then try again".to_owned())
            }
            Self::Stored(error) => error.hint(),
        }
    }
}
