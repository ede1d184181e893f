//! The parts of GitHub's objects that ralph reads.

use serde::Deserialize;

use crate::id::RepositoryName;

/// An account.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Account {
    pub(super) login: String,
    #[serde(rename = "type", default)]
    kind: String,
}

impl Account {
    /// Whether it belongs to an App.
    pub(super) fn is_program(&self) -> bool {
        self.kind == "Bot" || self.login.ends_with("[bot]")
    }
}

/// A repository.
#[derive(Debug, Deserialize)]
pub(super) struct RepositoryInfo {
    /// Its present name, also when it was asked for by an old one.
    pub(super) full_name: String,
    pub(super) html_url: String,
    #[serde(default)]
    pub(super) archived: bool,
    pub(super) default_branch: String,
}

/// A pull request.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pull {
    pub(super) number: u64,
    pub(super) node_id: String,
    pub(super) html_url: String,
    pub(super) state: PullState,
    pub(super) title: String,
    #[serde(default)]
    pub(super) body: Option<String>,
    #[serde(default)]
    pub(super) draft: bool,
    #[serde(default)]
    pub(super) merged_at: Option<String>,
    /// The commit that merged it, once it is merged.
    #[serde(default)]
    pub(super) merge_commit_sha: Option<String>,
    #[serde(default)]
    pub(super) labels: Vec<LabelName>,
    pub(super) head: PullBranch,
    pub(super) base: PullBranch,
}

impl Pull {
    /// Whether its branch is in the repository that it is to be merged into, not in a fork.
    pub(super) fn is_within_repository(&self) -> bool {
        match (&self.head.repo, &self.base.repo) {
            (Some(head), Some(base)) => head.full_name == base.full_name,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PullState {
    Open,
    Closed,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PullBranch {
    #[serde(rename = "ref")]
    pub(super) name: String,
    /// Its last commit.
    pub(super) sha: String,
    /// The repository that has it; `None` for a fork that was deleted.
    pub(super) repo: Option<PullRepository>,
}

impl PullBranch {
    /// Whether it is in this repository, not in a fork.
    pub(super) fn is_in(&self, repository: &RepositoryName) -> bool {
        let name = repository.to_string();
        let here = self.repo.as_ref();
        here.is_some_and(|here| here.full_name.eq_ignore_ascii_case(&name))
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PullRepository {
    pub(super) full_name: String,
}

/// A branch and its last commit.
#[derive(Debug, Deserialize)]
pub(super) struct BranchTip {
    pub(super) commit: BranchCommit,
}

#[derive(Debug, Deserialize)]
pub(super) struct BranchCommit {
    pub(super) sha: String,
}

/// The commits that a commit comes after.
#[derive(Debug, Deserialize)]
pub(super) struct CommitParents {
    pub(super) parents: Vec<BranchCommit>,
}

/// Pull requests on top of each other, the lowest first.
#[derive(Debug, Deserialize)]
pub(super) struct PullStack {
    pub(super) number: u64,
    pub(super) pull_requests: Vec<StackedPull>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StackedPull {
    pub(super) number: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct LabelName {
    pub(super) name: String,
    /// Its id in GraphQL. Events do not have it.
    #[serde(default)]
    pub(super) node_id: String,
}

/// A file that a pull request changes.
#[derive(Debug, Deserialize)]
pub(super) struct PullFile {
    pub(super) filename: String,
}

/// A rule of a ruleset or a protected branch.
#[derive(Debug, Deserialize)]
pub(super) struct BranchRule {
    #[serde(rename = "type")]
    pub(super) kind: String,
}

/// An event of an issue or pull request.
#[derive(Debug, Deserialize)]
pub(super) struct LabelEvent {
    pub(super) event: String,
    #[serde(default)]
    pub(super) label: Option<LabelName>,
}
