//! The forge: where a pull request is opened.

use std::borrow::Cow;
use std::path::PathBuf;

use async_trait::async_trait;
use thiserror::Error;

use super::error::ScmError;
use super::pull_review::ReviewAnswer;
use crate::id::{ObjectId, RunId};

/// Opens pull requests.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Checks before the run whether the pull request can be opened in the end. Returns what was found out, for people.
    async fn check(&self, planned: &PlannedPullRequest) -> Result<Option<String>, ForgeError> {
        let _ = planned;
        Ok(None)
    }

    /// Where a pull request into this branch belongs now. A branch whose own pull request was merged leads to the base of
    /// that one.
    async fn base(&self, base_branch: &str) -> Result<PullRequestBase, ForgeError> {
        Ok(PullRequestBase {
            branch: base_branch.to_owned(),
            below: None,
        })
    }

    /// Opens the pull request, or updates the open one. Idempotent.
    async fn open(&self, request: &PullRequest) -> Result<OpenedPullRequest, ForgeError>;

    /// Gives the server the note of a commit, beside all notes that it has, so that others can fetch it. Idempotent. Returns
    /// whether the server has it then; a forge without a server has none.
    async fn share_note(&self, notes_ref: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        let _ = (notes_ref, commit);
        Ok(false)
    }

    /// What the checks of the forge (its CI) say about a commit. A forge without any returns an empty report.
    async fn ci(&self, commit: &ObjectId) -> Result<CiReport, ForgeError> {
        let _ = commit;
        Ok(CiReport::default())
    }

    /// Other open pull requests into the same base branch that change some of these files.
    async fn overlaps(
        &self,
        branch: &str,
        base_branch: &str,
        files: &[String],
    ) -> Result<Vec<PullRequestOverlap>, ForgeError> {
        let _ = (branch, base_branch, files);
        Ok(Vec::new())
    }

    /// Answers reviewers of the pull request. An answer that is there already is not repeated. Returns why the forge refuses
    /// it, if so.
    async fn answer(&self, answer: &ReviewAnswer) -> Result<Option<String>, ForgeError> {
        let _ = answer;
        Ok(None)
    }

    /// Shows a status beside a commit of the pull request at this location. A forge without statuses does nothing.
    async fn set_status(
        &self,
        commit: &ObjectId,
        status: &CommitStatus,
        location: &str,
    ) -> Result<(), ForgeError> {
        let _ = (commit, status, location);
        Ok(())
    }

    /// Whether the pull request's branch is at this commit. Must not use a cached answer.
    async fn is_at(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError>;
}

/// A pull request that a run will open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPullRequest {
    /// Its branch, without `refs/heads/`.
    pub branch: String,
    /// The branch that it is to be merged into. `None` if the run started from a detached `HEAD`.
    pub base_branch: Option<String>,
    /// The commit that the run starts from.
    pub base: ObjectId,
    /// Whether the run waits for CI before it is done.
    pub waits_for_ci: bool,
}

/// The base of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequestBase {
    /// The branch.
    pub branch: String,
    /// The open pull request from that branch, which this one is stacked on, as the forge links it: for example `#12`.
    pub below: Option<String>,
}

/// Where a pull request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedPullRequest {
    /// Its location for people: a URL or a file.
    pub location: String,
    /// Whether there is a pull request. Otherwise only its branch is there.
    pub is_pull_request: bool,
    /// What could not be done as asked, and what was done instead.
    pub warnings: Vec<String>,
}

/// Another open pull request that changes the same files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequestOverlap {
    /// Its location for people.
    pub location: String,
    /// The files that both change.
    pub files: Vec<String>,
}

/// What CI says about a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CiReport {
    /// The checks that are not over.
    pub pending: Vec<String>,
    /// The checks that passed, or were skipped.
    pub passed: Vec<String>,
    /// The checks that failed.
    pub failed: Vec<CiFailure>,
}

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiFailure {
    /// Its name.
    pub name: String,
    /// How it ended, in the forge's word.
    pub conclusion: String,
    /// The end of its log, or the reason why it has no log.
    pub log: String,
}

/// A pull request to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// The run that opens it.
    pub run: RunId,
    /// Runs whose processes died, and whose branch and pull request this run goes on with.
    pub earlier_runs: Vec<RunId>,
    /// Its branch, without `refs/heads/`.
    pub branch: String,
    /// The branch that it is to be merged into.
    pub base_branch: String,
    /// The commit of its branch. It is in the user's repository.
    pub commit: ObjectId,
    /// The commits where this run or an earlier one may have left the branch. A branch at another commit is not changed.
    pub ours: Vec<ObjectId>,
    /// Its title.
    pub title: String,
    /// Its text, in Markdown.
    pub body: String,
    /// Whether it is a draft.
    pub draft: bool,
    /// Whether the run is done with it, or was done before and works on a review.
    pub is_done: bool,
    /// Its labels.
    pub labels: Vec<String>,
    /// The status that its commit gets.
    pub status: Option<CommitStatus>,
}

impl PullRequest {
    /// The run that opens it, and those that it goes on for.
    pub fn runs(&self) -> impl Iterator<Item = &RunId> + Clone {
        std::iter::once(&self.run).chain(&self.earlier_runs)
    }
}

/// What a forge shows beside a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStatus {
    /// The result.
    pub state: CommitState,
    /// A short description, for people.
    pub description: String,
}

/// The result of a commit's evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitState {
    /// The work is not done.
    Pending,
    /// The evidence is complete.
    Success,
    /// The tests fail, or the run failed.
    Failure,
    /// The run ended before its evidence was complete: it is paused, a person stopped it, or an error ended it.
    Error,
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
    /// A person closed or merged the pull request.
    #[error("the pull request {location} was {how} while the run worked")]
    Ended {
        /// Its location.
        location: String,
        /// `closed` or `merged`.
        how: &'static str,
    },
    /// The forge closed the pull request because its base branch was deleted.
    #[error("the pull request {location} was closed because its base branch `{base}` was deleted")]
    BaseDeleted {
        /// Its location.
        location: String,
        /// The branch.
        base: String,
    },
    /// The pull request cannot be opened: the server lacks something, or the account may not do it.
    #[error("{reason}")]
    NotPossible {
        /// What is missing.
        reason: String,
        /// What a person can do.
        hint: String,
    },
    /// The server failed, or refused a call.
    #[error("the forge failed")]
    Server {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// What a person can do.
        hint: Option<String>,
    },
}

impl ForgeError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Scm(error) => error.hint().map(Cow::Borrowed),
            Self::CheckedOut { .. } => Some("check out another branch there, then run `ralph resume`".into()),
            Self::Ended { .. } => Some("reopen it and run `ralph resume`, or start a new run".into()),
            Self::BaseDeleted { .. } => Some(
                "restore the branch, then reopen the pull request, in this order, and run `ralph resume`"
                    .into(),
            ),
            Self::NotPossible { hint, .. } => Some(hint.clone().into()),
            Self::Server { hint, .. } => hint.clone().map(Cow::Owned),
        }
    }

    /// Whether a person did something that the run must not undo: it pauses.
    #[must_use]
    pub fn is_by_person(&self) -> bool {
        matches!(
            self,
            Self::Ended { .. } | Self::BaseDeleted { .. } | Self::Scm(ScmError::RefMoved { .. })
        )
    }
}
