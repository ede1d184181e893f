//! What can go wrong with a credential.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::Kind;

/// What can go wrong while a credential is read or kept.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// A file cannot be used.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Others can read the file.
    #[error("`{}` can be read by others, so it may be known to them", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// What is kept is not a credential.
    #[error("{kind} is kept in a form that cannot be read")]
    Unreadable {
        /// Which one.
        kind: Kind,
        /// Why. It says where, never what.
        source: serde_json::Error,
    },
    /// The keychain's program could not be started.
    #[error("`{program}` cannot be started")]
    NoKeychain {
        /// The program.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The keychain refused.
    #[error("the keychain refused ({program}, {status}): {message}")]
    Keychain {
        /// The program.
        program: &'static str,
        /// How it ended.
        status: String,
        /// What it said.
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
                "replace the credential at its service, then `chmod 600 {}` and store the new one",
                path.display()
            )),
            Self::Unreadable { kind, .. } => Some(format!("store it again: `{}`", kind.store_command())),
            Self::NoKeychain { .. } | Self::Keychain { .. } => Some(
                "unlock the keychain, or keep the credential in a file: `ralph token store --file`"
                    .to_owned(),
            ),
        }
    }
}

/// Why there is no credential to send.
#[derive(Debug, Error)]
pub enum LoginError {
    /// None is stored.
    #[error("{0} is not stored")]
    Missing(Kind),
    /// It has ended, and nothing renews it.
    #[error("{0} has expired")]
    Expired(Kind),
    /// The token server does not take the refresh token any more.
    #[error("{kind} could not be renewed: the token server refused it (HTTP {status})")]
    Refused {
        /// Which one.
        kind: Kind,
        /// The status.
        status: u16,
    },
    /// A refresh was cut short after the token server had answered it: its one use is spent and its fruit is lost.
    #[error("{0} was used up by a refresh that was cut short before its result was stored")]
    UsedUp(Kind),
    /// The token server cannot be reached, or does not answer as one.
    #[error("{kind} could not be renewed: the token server does not answer")]
    Unavailable {
        /// Which one.
        kind: Kind,
        /// Why.
        source: reqwest::Error,
    },
    /// What is kept cannot be used.
    #[error(transparent)]
    Kept(#[from] CredentialError),
}

impl LoginError {
    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing(kind) | Self::Expired(kind) | Self::Refused { kind, .. } | Self::UsedUp(kind) => {
                Some(format!("store a new one: `{}`", kind.store_command()))
            }
            Self::Unavailable { .. } => Some("check the network of this machine, then try again".to_owned()),
            Self::Kept(error) => error.hint(),
        }
    }
}
