//! What can go wrong between the user's repository and a run's clone.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::bundle::BundleError;
use super::path::{NameProblem, RepoPath};
use crate::exec::ExitStatus;
use crate::id::ObjectId;
use crate::sandbox::SandboxError;

/// What can go wrong with git, on the host or in a sandbox.
#[derive(Debug, Error)]
pub enum ScmError {
    /// Git could not be started on the host.
    #[error("cannot start git")]
    Start(#[source] io::Error),
    /// The sandbox did not do its part.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A git command failed.
    #[error("`{command}` failed ({status}) in `{}`: {stderr}", dir.display())]
    Git {
        /// The command, as it could be typed.
        command: String,
        /// Where it ran.
        dir: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// A git command printed more than is read.
    #[error("`{command}` printed {bytes} bytes, more than is read")]
    OutputTooLong {
        /// The command.
        command: String,
        /// How much it printed.
        bytes: u64,
    },
    /// A git command printed something else than its documentation says.
    #[error("cannot read what git printed as {what}: {text}")]
    Unexpected {
        /// What was expected.
        what: &'static str,
        /// The beginning of what came.
        text: String,
    },
    /// There is no repository.
    #[error("`{}` is not a git repository: {reason}", path.display())]
    NotARepository {
        /// Where it was looked for.
        path: PathBuf,
        /// What git said.
        reason: String,
    },
    /// The repository holds a part of its history only, so that no complete clone can be made of it.
    #[error("`{}` is a {kind}: a run needs a repository with its whole history", path.display())]
    Incomplete {
        /// Which one.
        path: PathBuf,
        /// In what way.
        kind: Incomplete,
    },
    /// A revision that the repository does not have.
    #[error("`{0}` names no commit in this repository")]
    UnknownRevision(String),
    /// A ref is not where it was expected; someone else moved it.
    #[error("`{name}` was moved by someone else: expected {}, found {}", or_nothing(.expected.as_ref()), or_nothing(.found.as_ref()))]
    RefMoved {
        /// The ref.
        name: String,
        /// Where it should have been; `None`: nowhere.
        expected: Option<ObjectId>,
        /// Where it is.
        found: Option<ObjectId>,
    },
    /// A file of the host could not be handled.
    #[error("cannot {operation} `{}`", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The clone's `HEAD` names no commit.
    #[error("the clone has no commit checked out")]
    NoCommit,
    /// A path that cannot be part of a checkpoint.
    #[error("`{0}` cannot be kept in a checkpoint")]
    StatePath(String),
    /// What the sandbox handed back was not taken.
    #[error("the hand-back was refused")]
    Refused(#[from] Refusal),
}

impl ScmError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Start(_) => Some("install git and make sure that it is on the PATH"),
            Self::NotARepository { .. } => Some("run inside a git repository, or make one with `git init`"),
            Self::Incomplete { kind, .. } => Some(match kind {
                Incomplete::Shallow => "fetch the rest with `git fetch --unshallow`",
                Incomplete::Partial => {
                    "fetch the rest with `git fetch --refetch --no-filter`, then unset `remote.<name>.promisor`"
                }
            }),
            Self::UnknownRevision(_) => {
                Some("`git branch --all` lists what there is; a new repository needs a first commit")
            }
            Self::RefMoved { .. } => {
                Some("look at it with `git log`, then move it back or choose another name")
            }
            _ => None,
        }
    }
}

/// How a repository lacks a part of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incomplete {
    /// Old commits are missing.
    Shallow,
    /// Objects are fetched when they are first needed.
    Partial,
}

impl std::fmt::Display for Incomplete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Shallow => "shallow clone",
            Self::Partial => "partial clone",
        })
    }
}

/// Why a hand-back was not taken. Nothing of it is in the user's repository then.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The bundle's header is not what was asked for.
    #[error("the bundle cannot be used")]
    Bundle(#[from] BundleError),
    /// The bundle is longer than allowed.
    #[error("the bundle is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: u64,
    },
    /// Git found the pack damaged, incomplete or malformed.
    #[error("git did not accept the objects: {0}")]
    Objects(String),
    /// The branch was rewritten below the commit that the run started from.
    #[error("{tip} does not descend from {base}, which the run started from")]
    Rewritten {
        /// What the run started from.
        base: ObjectId,
        /// What the clone's branch is at.
        tip: ObjectId,
    },
    /// A commit holds a name that must not be in a repository.
    #[error("commit {commit} holds `{path}`: {problem}")]
    Name {
        /// Which commit.
        commit: ObjectId,
        /// Where.
        path: RepoPath,
        /// What is wrong with it.
        problem: NameProblem,
    },
    /// Two names in one directory are the same on some file systems.
    #[error("commit {commit} holds both `{one}` and `{other}`, which are one file on some systems")]
    Collision {
        /// Which commit.
        commit: ObjectId,
        /// One of them.
        one: RepoPath,
        /// The other.
        other: RepoPath,
    },
    /// A known secret stands in a message, a name or a file.
    #[error("a known secret stands in what the agent changed")]
    Secret,
}

fn or_nothing(id: Option<&ObjectId>) -> &str {
    id.map_or("nothing", ObjectId::as_str)
}
