//! Errors of keys and of verification.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a key cannot be used.
#[derive(Debug, Error)]
pub enum EvidenceKeyError {
    /// A file operation failed.
    #[error("cannot {operation} the key file `{}`", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Other users can read the private key.
    #[error("other users can read the private key `{}` (mode {mode:o})", path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file of the host's key has another content.
    #[error("`{}` is not an Ed25519 private key in PEM (PKCS #8)", .0.display())]
    NotPrivate(PathBuf),
    /// Another content than a public key.
    #[error("`{name}` is not an Ed25519 public key in PEM: {reason}")]
    NotPublic {
        /// The name of the file.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
}

impl EvidenceKeyError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => {
                "check that the file exists and that this user can read and write its directory"
            }
            Self::Readable { .. } => {
                "treat the key as known to others: delete the file, so that ralph makes a new one, and list the new public key"
            }
            Self::NotPrivate(_) => {
                "move the file away: ralph makes a new key, whose public key has to be listed"
            }
            Self::NotPublic { .. } => {
                "`ralph evidence key` on the host that signed prints its public key; a listed file has exactly that content"
            }
        }
    }
}

/// Why evidence does not count.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvidenceRefusal {
    /// The note holds no envelope.
    #[error("the note holds no signed statement that can be read")]
    NoEnvelope,
    /// No trusted key signed it.
    #[error("none of the trusted keys signed it; the note claims {}", claimed(.0))]
    NotTrusted(Vec<String>),
    /// It is signed, and is something else than a statement.
    #[error("the signed payload has the type `{0}`, which ralph does not know")]
    PayloadType(String),
    /// It is signed, and is not a statement of a known form.
    #[error("the signed statement has the type `{0}`, which ralph does not know")]
    StatementType(String),
    /// It is signed, and states something else than evidence.
    #[error("the signed predicate has the type `{0}`, which ralph does not know")]
    PredicateType(String),
    /// It is signed, and cannot be read.
    #[error("the signed statement cannot be read: {0}")]
    Malformed(String),
    /// It is signed for another commit.
    #[error("the signed statement is about {0}, not about this commit")]
    OtherCommit(String),
}

fn claimed(ids: &[String]) -> String {
    match ids {
        [] => "no key".to_owned(),
        ids => format!("the key {}", ids.join(", ")),
    }
}
