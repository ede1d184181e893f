//! Stacked pull requests: the base of one is the branch of another.
//!
//! GitHub closes a pull request whose base branch is deleted, and does not reopen it before that branch is restored. So ralph
//! changes the base as soon as the pull request below is merged, which is when people delete its branch.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::error::GitHubError;
use super::forge::GitHubForge;
use super::marker::is_of_ralph;
use super::pulls::{Pulls, query_value};
use super::wire::{BranchTip, Pull, PullStack, PullState};
use crate::scm::ForgeError;

/// How many merged pull requests below each other are followed.
const MAX_DEPTH: usize = 20;

/// Where a pull request into a branch belongs.
pub(super) struct StackPlace {
    /// Its base branch.
    pub(super) base: String,
    /// The open pull request of ralph from that branch.
    pub(super) below: Option<Pull>,
    /// The pull requests that were merged on the way there, the highest first.
    merged: Vec<Pull>,
}

/// A change of the base of a pull request: its number, its last commit and the new base.
pub(super) type BaseChange = (u64, String, String);

impl Pull {
    /// Whether ralph opened it: its text ends with the marker, and its branch is in this repository. Anyone can write a marker,
    /// but not into a branch of the repository.
    fn is_of_ralph(&self) -> bool {
        self.is_within_repository() && is_of_ralph(self.body.as_deref().unwrap_or_default())
    }

    fn is_within_repository(&self) -> bool {
        match (&self.head.repo, &self.base.repo) {
            (Some(head), Some(base)) => head.full_name == base.full_name,
            _ => false,
        }
    }

    fn is_open(&self) -> bool {
        self.state == PullState::Open
    }
}

impl Pulls<'_> {
    /// Where a pull request into `branch` belongs now. Only pull requests of ralph are part of a stack: other branches, such as
    /// `develop`, live on after they are merged into another one.
    pub(super) async fn stack_place(
        &self,
        branch: &str,
        default_branch: &str,
    ) -> Result<StackPlace, GitHubError> {
        let mut place = StackPlace {
            base: branch.to_owned(),
            below: None,
            merged: Vec::new(),
        };
        while place.base != default_branch && place.merged.len() < MAX_DEPTH {
            let mut found = self.all_from(&place.base).await?;
            // A fork of the same owner may have a branch of the same name.
            found.retain(Pull::is_within_repository);
            if found.iter().any(Pull::is_open) {
                place.below = found
                    .into_iter()
                    .find(|pull| pull.is_open() && pull.is_of_ralph());
                break;
            }
            let is_merged = |pull: &Pull| pull.merged_at.is_some() && pull.is_of_ralph();
            let Some(merged) = found.into_iter().find(is_merged) else {
                break;
            };
            if self.has_newer_commits(&merged).await? {
                break;
            }
            place.base.clone_from(&merged.base.name);
            place.merged.push(merged);
        }
        Ok(place)
    }

    /// Whether the branch of a merged pull request has commits that it did not have then.
    async fn has_newer_commits(&self, merged: &Pull) -> Result<bool, GitHubError> {
        let path = self.path(&format!("branches/{}", query_value(&merged.head.name)));
        match self.client.get_again::<BranchTip>(&path).await {
            Err(error) if error.status() == Some(404) => Ok(false),
            tip => Ok(tip?.commit.sha != merged.head.sha),
        }
    }

    /// Changes the base of an open pull request to its place, because `below` is merged. Returns what was done, for people.
    async fn retarget(&self, pull: &Pull, place: &StackPlace, below: &Pull) -> Result<String, GitHubError> {
        let path = self.path(&format!("pulls/{}", pull.number));
        let changed: Pull = self.client.patch(&path, json!({ "base": place.base })).await?;
        Ok(format!(
            "{} is now into `{}`, because {} is merged; if that was a squash or a rebase, `git rebase --onto origin/{} {} {}` \
             leaves out the commits of the merged branch",
            changed.html_url, place.base, below.html_url, place.base, below.head.sha, pull.head.name
        ))
    }

    /// Makes a stack of two pull requests, or adds the upper one to the stack of the lower one. Nothing happens on servers
    /// without stacks, and if another pull request is on the lower one already: a stack is a line.
    pub(super) async fn stack_on(&self, below: &Pull, pull: &Pull) -> Result<(), GitHubError> {
        let path = self.path(&format!("stacks?pull_request={}", below.number));
        let stacks: Vec<PullStack> = match self.client.list(&path).await {
            Err(error) if error.status() == Some(404) => return Ok(()),
            stacks => stacks?,
        };
        let (path, members) = match stacks.first() {
            None => ("stacks".to_owned(), vec![below.number, pull.number]),
            Some(stack) => {
                let top = stack.pull_requests.last().map(|top| top.number);
                if top != Some(below.number) {
                    return Ok(());
                }
                (format!("stacks/{}/add", stack.number), vec![pull.number])
            }
        };
        let body = json!({ "pull_requests": members });
        self.client.post::<Value>(&self.path(&path), body).await.map(drop)
    }
}

impl GitHubForge {
    /// Changes the base of each open pull request of ralph whose pull request below is merged, so that it stays open when that
    /// branch is deleted. Returns what was done, and what failed, for people. Costs one call if nothing is stacked. What GitHub
    /// refuses (422) is tried again only with another commit or another base.
    pub async fn retarget_stacked(&self) -> Result<Vec<String>, ForgeError> {
        let (name, info) = self.info().await?;
        let pulls = Pulls {
            client: &self.client,
            repository: name,
        };
        let open: Vec<Pull> = self.client.list_again(&pulls.path("pulls?state=open")).await?;
        let is_stacked = |pull: &&Pull| pull.base.name != info.default_branch && pull.is_of_ralph();
        let mut by_base: BTreeMap<&str, Vec<&Pull>> = BTreeMap::new();
        for pull in open.iter().filter(is_stacked) {
            by_base.entry(&pull.base.name).or_default().push(pull);
        }
        let mut lines = Vec::new();
        for (base, stacked) in by_base {
            match pulls.stack_place(base, &info.default_branch).await {
                Ok(place) => lines.extend(self.retarget_all(&pulls, &stacked, &place).await),
                Err(error) => lines.push(format!("cannot look for the pull request of `{base}`: {error}")),
            }
        }
        Ok(lines)
    }

    /// Changes the base of these pull requests, which have the same one, if the one below is merged.
    async fn retarget_all(&self, pulls: &Pulls<'_>, stacked: &[&Pull], place: &StackPlace) -> Vec<String> {
        let Some(below) = place.merged.first() else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        for pull in stacked {
            let change = (pull.number, pull.head.sha.clone(), place.base.clone());
            if self.refused_bases.lock().await.contains(&change) {
                continue;
            }
            match pulls.retarget(pull, place, below).await {
                Ok(done) => lines.push(done),
                Err(error) => {
                    lines.push(not_changed(pull, &error));
                    if error.status() == Some(422) {
                        self.refused_bases.lock().await.insert(change);
                    }
                }
            }
        }
        lines
    }

    /// Keeps an open pull request in its stack: changes its base if the one below is merged, and adds it to GitHub's stack.
    /// Returns warnings.
    pub(super) async fn keep_stacked(
        &self,
        pulls: &Pulls<'_>,
        pull: &Pull,
    ) -> Result<Vec<String>, ForgeError> {
        let (_, info) = self.info().await?;
        if pull.base.name == info.default_branch {
            return Ok(Vec::new());
        }
        let place = pulls.stack_place(&pull.base.name, &info.default_branch).await?;
        if let Some(below) = place.merged.first() {
            let changed = pulls.retarget(pull, &place, below).await;
            return Ok(vec![changed.unwrap_or_else(|error| not_changed(pull, &error))]);
        }
        let mut warnings = Vec::new();
        if let Some(below) = &place.below
            && let Err(error) = pulls.stack_on(below, pull).await
        {
            let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
            warnings.push(format!("{} is not in a stack: {error}{hint}", pull.html_url));
        }
        Ok(warnings)
    }
}

fn not_changed(pull: &Pull, error: &GitHubError) -> String {
    format!("the base of {} was not changed: {error}", pull.html_url)
}
