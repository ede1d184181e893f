//! The forge: where a pull request is opened.

use std::path::PathBuf;

use async_trait::async_trait;
use thiserror::Error;

use super::error::ScmError;
use crate::id::ObjectId;

/// Opens pull requests.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Opens the pull request, or updates the open one, and returns its location for people: a URL or a file. Idempotent.
    async fn open(&self, request: &PullRequest) -> Result<String, ForgeError>;

    /// Whether the pull request's branch is at this commit. Must not use a cached answer.
    async fn is_at(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError>;
}

/// A pull request to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// Its branch, without `refs/heads/`.
    pub branch: String,
    /// The branch that it is to be merged into.
    pub base_branch: String,
    /// The commit of its branch. It is in the user's repository.
    pub commit: ObjectId,
    /// The commits where this run may have left the branch. A branch at another commit is not changed.
    pub ours: Vec<ObjectId>,
    /// Its title.
    pub title: String,
    /// Its text, in Markdown.
    pub body: String,
    /// Whether it is a draft.
    pub draft: bool,
    /// Its labels.
    pub labels: Vec<String>,
}

/// Why a pull request could not be opened.
#[derive(Debug, Error)]
pub enum ForgeError {
    /// Git failed. [`ScmError::RefMoved`] if the branch is at an unknown commit.
    #[error(transparent)]
    Scm(#[from] ScmError),
    /// The branch is checked out. Moving it would make that working directory look changed.
    #[error("the branch `{branch}` is checked out in `{}`", worktree.display())]
    CheckedOut {
        /// The branch.
        branch: String,
        /// The working directory.
        worktree: PathBuf,
    },
}

impl ForgeError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Scm(error) => error.hint(),
            Self::CheckedOut { .. } => Some("check out another branch there, then run `ralph resume`"),
        }
    }
}
