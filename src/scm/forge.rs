//! Where pull requests are opened.

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use thiserror::Error;

use super::error::ScmError;
use crate::id::ObjectId;

/// Opens pull requests.
#[async_trait]
pub trait Forge: Send + Sync {
    /// The name used in configuration.
    fn name(&self) -> &'static str;

    /// Opens the pull request, or brings the one that is open up to date. Doing it twice is harmless.
    async fn open(&self, request: &PullRequest) -> Result<Opened, ForgeError>;

    /// Whether the pull request's branch is at this commit now. Asks; never remembers.
    async fn holds(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError>;
}

/// What a pull request should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// Its branch, without `refs/heads/`.
    pub branch: String,
    /// The branch it is to be merged into.
    pub base_branch: String,
    /// What its branch is to be at. The user's repository has it.
    pub commit: ObjectId,
    /// Where this run may have left the branch earlier. Anywhere else, it is someone else's.
    pub ours: Vec<ObjectId>,
    /// Its title.
    pub title: String,
    /// Its text, in Markdown.
    pub body: String,
    /// Whether it is ready to be merged.
    pub readiness: Readiness,
    /// Labels on it.
    pub labels: Vec<String>,
}

/// Whether a pull request is ready to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Work in progress.
    Draft,
    /// Ready for review.
    Ready,
}

/// A pull request that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Where a person finds it: a link or a file.
    pub location: String,
    /// What its branch is at.
    pub commit: ObjectId,
}

/// Why a pull request was not opened.
#[derive(Debug, Error)]
pub enum ForgeError {
    /// Git did not do its part; [`ScmError::RefMoved`] when the branch is someone else's.
    #[error(transparent)]
    Scm(#[from] ScmError),
    /// The branch is checked out; moving it would make that working directory look changed.
    #[error("the branch `{branch}` is checked out in `{}`", worktree.display())]
    CheckedOut {
        /// Which branch.
        branch: String,
        /// Where.
        worktree: PathBuf,
    },
    /// The pull-request file could not be written.
    #[error("cannot write the pull request to `{}`", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ForgeError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Scm(error) => error.hint(),
            Self::CheckedOut { .. } => Some("check out another branch there, then `ralph resume`"),
            Self::Write { .. } => None,
        }
    }
}
