//! Errors of the user's repository, a run's clone and the hand-back.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::bundle::BundleError;
use super::path::{NameProblem, RepoPath};
use crate::exec::ExitStatus;
use crate::id::ObjectId;
use crate::sandbox::SandboxError;

/// An error of git, on the host or in a sandbox.
#[derive(Debug, Error)]
pub enum ScmError {
    /// Git could not be started on the host.
    #[error("cannot start git")]
    Start(#[source] io::Error),
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A git command failed.
    #[error("`{command}` failed ({status}) in `{}`: {stderr}", dir.display())]
    Git {
        /// The command line.
        command: String,
        /// The working directory.
        dir: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// Its error message.
        stderr: String,
    },
    /// A git command printed too much.
    #[error("`{command}` printed {bytes} bytes, more than ralph reads")]
    OutputTooLong {
        /// The command.
        command: String,
        /// The length of its output.
        bytes: u64,
    },
    /// A git command printed something unexpected.
    #[error("cannot parse the output of git as {what}: {text}")]
    Unexpected {
        /// What was expected.
        what: &'static str,
        /// The beginning of the output.
        text: String,
    },
    /// There is no repository.
    #[error("`{}` is not a git repository: {reason}", path.display())]
    NotARepository {
        /// The path.
        path: PathBuf,
        /// The message of git.
        reason: String,
    },
    /// The repository has only a part of its history, so it cannot be cloned completely.
    #[error("`{}` is a {kind}: a run needs a repository with its complete history", path.display())]
    Incomplete {
        /// The repository.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
        /// How to complete it.
        hint: &'static str,
    },
    /// The path of a repository cannot be written down: it is not UTF-8, or has a line break in it.
    #[error("the path of the repository at {0:?} is not UTF-8 or has a line break in it")]
    UnusablePath(PathBuf),
    /// The repository cannot be written to.
    #[error("the repository `{}` cannot be written to", path.display())]
    NotWritable {
        /// The git directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A revision that does not exist.
    #[error("`{0}` is not a commit, branch or tag of this repository")]
    UnknownRevision(String),
    /// A ref is not at the expected object: another process moved it.
    #[error("`{name}` was moved by another process: expected {}, found {}", or_nothing(.expected.as_ref()), or_nothing(.found.as_ref()))]
    RefMoved {
        /// The ref.
        name: String,
        /// The expected object. `None` means that the ref should not exist.
        expected: Option<ObjectId>,
        /// The actual object.
        found: Option<ObjectId>,
    },
    /// A server refused a push.
    #[error("{url} refused the push to `{branch}`: {reason}")]
    PushRefused {
        /// The address of the repository.
        url: String,
        /// The branch, or the full name of another ref.
        branch: String,
        /// The server's message.
        reason: String,
    },
    /// Git cannot have a branch and another one below its name.
    #[error("the branch `{name}` cannot be created, because the branch `{existing}` exists")]
    BranchConflict {
        /// The branch that is wanted.
        name: String,
        /// The branch that is in the way.
        existing: String,
    },
    /// A file operation on the host failed.
    #[error("cannot {operation} `{}`", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The clone's `HEAD` is not a commit.
    #[error("the clone has no commit checked out")]
    NoCommit,
    /// A path that cannot be part of a checkpoint.
    #[error("`{0}` cannot be part of a checkpoint")]
    StatePath(String),
    /// A file of a checkpoint whose object the repository lacks.
    #[error("the repository lacks the object {id}, which is `{path}` of a checkpoint")]
    MissingObject {
        /// The object.
        id: String,
        /// The path in the checkpoint.
        path: String,
    },
    /// The hand-back was refused.
    #[error("the hand-back was refused")]
    Refused(#[from] HandBackRefusal),
}

impl ScmError {
    /// For `map_err`: a failed operation on a file of the host.
    pub(super) fn file(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::File {
            operation,
            path: path.to_owned(),
            source,
        }
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Start(_) => Some("install git and make sure that it is on the PATH"),
            Self::NotARepository { .. } => Some("run inside a git repository, or create one with `git init`"),
            Self::Incomplete { hint, .. } => Some(hint),
            Self::NotWritable { .. } => Some(
                "a run keeps its state and its branch in the repository: make it writable for this user, or use a clone",
            ),
            Self::UnusablePath(_) => Some("move or rename the directory"),
            Self::UnknownRevision(_) => {
                Some("list the branches with `git branch --all`; a new repository needs a first commit")
            }
            Self::RefMoved { .. } => {
                Some("look at it with `git log`, then move it back or choose another name")
            }
            Self::PushRefused { reason, .. } => Some(push_hint(reason)),
            Self::BranchConflict { .. } => Some(
                "rename it with `git branch -m`, or set another `git.branch_prefix` or `target_branch_prefix` of the task",
            ),
            Self::MissingObject { .. } => Some(
                "`git fsck` lists what is missing: fetch the state ref of the run from another copy of the repository",
            ),
            _ => None,
        }
    }
}

/// Why a hand-back was refused. Nothing of it is in the user's repository.
#[derive(Debug, Error)]
pub enum HandBackRefusal {
    /// The header of the bundle is not the expected one.
    #[error("the bundle cannot be used")]
    Bundle(#[from] BundleError),
    /// The bundle is too long.
    #[error("the bundle is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: u64,
    },
    /// The pack is damaged, incomplete or malformed.
    #[error("git refused the objects: {0}")]
    Objects(String),
    /// The branch no longer contains the commit that the run started from.
    #[error("{tip} does not descend from {base}, where the run started")]
    Rewritten {
        /// The commit that the run started from.
        base: ObjectId,
        /// The tip of the clone's branch.
        tip: ObjectId,
    },
    /// A commit contains a forbidden name.
    #[error("commit {commit} contains `{path}`: {problem}")]
    Name {
        /// The commit.
        commit: ObjectId,
        /// The path.
        path: RepoPath,
        /// Why it is forbidden.
        problem: NameProblem,
    },
    /// A commit contains a file of the run, which an agent can only add with force.
    #[error("commit {commit} contains `{path}`, which belongs to the run")]
    RunFile {
        /// The commit.
        commit: ObjectId,
        /// The file.
        path: RepoPath,
    },
    /// Two names in one directory are the same on some file systems.
    #[error("commit {commit} contains both `{one}` and `{other}`, which are the same file on some systems")]
    Collision {
        /// The commit.
        commit: ObjectId,
        /// The first name.
        one: RepoPath,
        /// The second name.
        other: RepoPath,
    },
    /// A message, a name or a file contains a known secret.
    #[error("the agent's changes contain a known secret")]
    Secret,
}

fn or_nothing(id: Option<&ObjectId>) -> &str {
    id.map_or("nothing", ObjectId::as_str)
}

/// What to do about a push that a server refused, by its message.
fn push_hint(reason: &str) -> &'static str {
    let reason = reason.to_lowercase();
    if reason.contains("workflow") {
        "the work changes files in `.github/workflows`: give the token the permission `workflows: write` (scope `workflow`), then run `ralph resume`"
    } else if reason.contains("archived") || reason.contains("read-only") {
        "the repository is archived: unarchive it, then run `ralph resume`"
    } else if reason.contains("protected branch") || reason.contains("rule violations") {
        "a ruleset or a protected branch forbids it: exempt the branches of ralph, or set another `git.branch_prefix`"
    } else {
        "read the server's message, mend it there, then run `ralph resume`"
    }
}
