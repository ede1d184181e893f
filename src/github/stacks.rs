//! Stacked pull requests: the base of one is the branch of another.
//!
//! GitHub closes a pull request whose base branch is deleted, and does not reopen it before that branch is restored. So ralph
//! changes the base as soon as the pull request below is merged, which is when people delete its branch.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::claims::{ClaimAttempt, Claims};
use super::error::GitHubError;
use super::forge::GitHubForge;
use super::issues::Issues;
use super::marker::is_of_ralph;
use super::pulls::Pulls;
use super::wire::{BranchTip, CommitParents, Pull, PullStack, PullState};
use crate::scm::ForgeError;
use crate::text::{shell_word, url_part};

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

/// What was done about a stacked pull request, or could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackChange {
    /// It, for people.
    pub text: String,
    /// Whether a person has to do the rest.
    pub needs_person: bool,
}

/// A change of the base of a pull request: its number, its last commit and the new base.
pub(super) type BaseChange = (u64, String, String);

impl Pull {
    /// Whether ralph opened it: its text ends with the marker, and its branch is in this repository. Anyone can write a marker,
    /// but not into a branch of the repository.
    fn is_of_ralph(&self) -> bool {
        self.is_within_repository() && is_of_ralph(self.body.as_deref().unwrap_or_default())
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
        let path = self.path(&format!("branches/{}", url_part(&merged.head.name)));
        match self.client.get_again::<BranchTip>(&path).await {
            Err(error) if error.status() == Some(404) => Ok(false),
            tip => Ok(tip?.commit.sha != merged.head.sha),
        }
    }

    /// Whether the commits of these merged pull requests are in their bases: a merge commit keeps them, a squash or a rebase
    /// writes others. `false` if GitHub does not say.
    async fn are_kept(&self, merged: &[Pull]) -> Result<bool, GitHubError> {
        for pull in merged {
            let Some(commit) = &pull.merge_commit_sha else {
                return Ok(false);
            };
            let path = self.path(&format!("git/commits/{commit}"));
            let found: CommitParents = self.client.get_again(&path).await?;
            let is_parent = found.parents.iter().any(|parent| parent.sha == pull.head.sha);
            if !is_parent && *commit != pull.head.sha {
                return Ok(false);
            }
        }
        Ok(true)
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
    ///
    /// Each pull request is claimed meanwhile, so that of several processes one changes it and writes the comment.
    pub async fn retarget_stacked(&self, claims: &Claims) -> Result<Vec<StackChange>, ForgeError> {
        let (_, info) = self.info().await?;
        let pulls = self.pulls().await?;
        let open: Vec<Pull> = self.client.list_again(&pulls.path("pulls?state=open")).await?;
        let is_stacked = |pull: &&Pull| pull.base.name != info.default_branch && pull.is_of_ralph();
        let mut by_base: BTreeMap<&str, Vec<&Pull>> = BTreeMap::new();
        for pull in open.iter().filter(is_stacked) {
            by_base.entry(&pull.base.name).or_default().push(pull);
        }
        let mut changes = Vec::new();
        for (base, stacked) in by_base {
            match pulls.stack_place(base, &info.default_branch).await {
                Ok(place) => changes.extend(self.retarget_all(&pulls, &stacked, &place, claims).await),
                Err(error) => changes.push(StackChange {
                    text: format!("cannot look for the pull request of `{base}`: {error}"),
                    needs_person: true,
                }),
            }
        }
        Ok(changes)
    }

    /// Changes the base of these pull requests, which have the same one, if the one below is merged.
    async fn retarget_all(
        &self,
        pulls: &Pulls<'_>,
        stacked: &[&Pull],
        place: &StackPlace,
        claims: &Claims,
    ) -> Vec<StackChange> {
        let Some(below) = place.merged.first() else {
            return Vec::new();
        };
        let mut changes = Vec::new();
        for pull in stacked {
            let change = (pull.number, pull.head.sha.clone(), place.base.clone());
            if self.refused_bases.lock().await.contains(&change) {
                continue;
            }
            match self.retarget_claimed(pulls, pull, place, below, claims).await {
                Ok(done) => changes.extend(done),
                Err(error) => {
                    changes.push(not_changed(pull, &error));
                    if error.status() == Some(422) {
                        self.refused_bases.lock().await.insert(change);
                    }
                }
            }
        }
        changes
    }

    /// Like [`GitHubForge::retarget`] with a claim on the pull request. `None` if another process does it, or did.
    async fn retarget_claimed(
        &self,
        pulls: &Pulls<'_>,
        pull: &Pull,
        place: &StackPlace,
        below: &Pull,
        claims: &Claims,
    ) -> Result<Option<StackChange>, GitHubError> {
        let ClaimAttempt::Won(claim) = claims.claim(pull.number, None).await? else {
            return Ok(None);
        };
        let changed = async {
            let now: Pull = self
                .client
                .get(&pulls.path(&format!("pulls/{}", pull.number)))
                .await?;
            if !now.is_open() || now.base.name != pull.base.name {
                return Ok(None);
            }
            self.retarget(pulls, pull, place, below).await.map(Some)
        };
        let changed = changed.await;
        claims.release(claim).await?;
        changed
    }

    /// Changes the base of an open pull request to its place, because `below` is merged. If the commits below have become
    /// others, they would be in this pull request too, and a comment says first how a person leaves them out.
    async fn retarget(
        &self,
        pulls: &Pulls<'_>,
        pull: &Pull,
        place: &StackPlace,
        below: &Pull,
    ) -> Result<StackChange, GitHubError> {
        let are_kept = pulls.are_kept(&place.merged).await?;
        let mut text = format!(
            "the base of {} is now `{}`, because {} is merged",
            pull.html_url, place.base, below.html_url
        );
        if !are_kept {
            let (base, branch) = (format!("origin/{}", place.base), shell_word(&pull.head.name));
            let rebase = format!("git rebase --onto {} {}", shell_word(&base), below.head.sha);
            let comment = format!(
                "#{} was merged with other commits than those of its branch (a squash or a rebase), so its commits are in this \
                 pull request too. To leave them out:\n\n```sh\ngit fetch origin\ngit switch {branch}\n{rebase}\n\
                 git push --force-with-lease origin {branch}\n```\n\nThe new commits have no evidence; a new run on them gives it.",
                below.number
            );
            let issues = Issues::new(self.client.clone(), pulls.repository.clone());
            text = format!(
                "{text} by a squash or a rebase: `git switch {branch} && {rebase}` leaves out its commits"
            );
            // The base has to change all the same: without it, GitHub closes the pull request with the branch.
            if let Err(error) = issues.set_comment(pull.number, &comment).await {
                text = format!("{text} (the comment that says so was not written: {error})");
            }
        }
        let path = pulls.path(&format!("pulls/{}", pull.number));
        self.client
            .patch::<Value>(&path, json!({ "base": place.base }))
            .await?;
        Ok(StackChange {
            text,
            needs_person: !are_kept,
        })
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
            let changed = self.retarget(pulls, pull, &place, below).await;
            let changed = changed.unwrap_or_else(|error| not_changed(pull, &error));
            return Ok(vec![changed.text]);
        }
        let mut warnings = Vec::new();
        if let Some(below) = &place.below
            && let Err(error) = pulls.stack_on(below, pull).await
        {
            let problem = error.with_hint();
            warnings.push(format!("{} is not in a stack: {problem}", pull.html_url));
        }
        Ok(warnings)
    }
}

fn not_changed(pull: &Pull, error: &GitHubError) -> StackChange {
    StackChange {
        text: format!("the base of {} was not changed: {error}", pull.html_url),
        needs_person: true,
    }
}
