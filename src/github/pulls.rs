//! Pull requests on GitHub: found again by branch and marker, created once, changed only where they differ.

use serde_json::{Map, Value, json};

use super::client::GitHubClient;
use super::error::GitHubError;
use super::marker::{MarkedText, is_done, mark, origin, run_of, with_done, with_run};
use super::wire::{LabelEvent, LabelName, Pull, PullFile, PullState};
use crate::id::{RepositoryName, RunId};
use crate::scm::{PullRequest, PullRequestOverlap};
use crate::text::url_part;
use tokio::time::sleep;

/// How often GitHub is asked again for what it may not show yet: a branch that was just pushed, or a new pull request.
const LOOKS: u32 = 6;

/// The pull requests of one repository.
pub(super) struct Pulls<'c> {
    pub(super) client: &'c GitHubClient,
    pub(super) repository: &'c RepositoryName,
}

impl Pulls<'_> {
    pub(super) fn path(&self, rest: &str) -> String {
        format!("repos/{}/{rest}", self.repository)
    }

    /// The pull request of a branch: one with the marker of these runs first, open ones before closed ones.
    pub(super) async fn find<'r>(
        &self,
        branch: &str,
        runs: impl Iterator<Item = &'r RunId> + Clone,
    ) -> Result<Option<Pull>, GitHubError> {
        let found = self.all_from(branch).await?;
        let rank = |pull: &Pull| {
            let body = pull.body.as_deref().unwrap_or_default();
            let is_of = |run| origin(&pull.title, body, run) != MarkedText::Foreign;
            let is_marked = runs.clone().any(is_of);
            match (pull.state, is_marked) {
                (PullState::Open, true) => 0,
                (PullState::Open, false) => 1,
                (PullState::Closed, true) => 2,
                (PullState::Closed, false) => 3,
            }
        };
        let best = found.into_iter().min_by_key(|pull| (rank(pull), pull.number));
        // A closed one without the marker belongs to an earlier run.
        Ok(best.filter(|pull| rank(pull) < 3))
    }

    /// All pull requests from a branch, open and closed, the newest first. GitHub does not count the call if they have not
    /// changed since the last one.
    pub(super) async fn all_from(&self, branch: &str) -> Result<Vec<Pull>, GitHubError> {
        let owner = self.repository.as_str().split('/').next().unwrap_or_default();
        // With its owner: forks may have a branch of the same name.
        let head = url_part(&format!("{owner}:{branch}"));
        let path = self.path(&format!("pulls?state=all&head={head}"));
        self.client.list_again(&path).await
    }

    /// Creates the pull request. GitHub has one open pull request for a branch and its base, so a second one cannot appear;
    /// after a lost answer, or when there is one already, it is looked up.
    pub(super) async fn create(&self, request: &PullRequest) -> Result<Pull, GitHubError> {
        let mut draft = request.draft;
        let mut looks = 0;
        loop {
            let body = json!({
                "title": request.title,
                "body": mark(&request.title, &request.body, &request.run, request.is_done),
                "head": request.branch,
                "base": request.base_branch,
                "draft": draft,
            });
            let error = match self.client.post(&self.path("pulls"), body).await {
                Ok(created) => return Ok(created),
                Err(error) => error,
            };
            if error.says(422, "draft pull requests are not supported") && draft {
                draft = false;
                continue;
            }
            let exists = error.says(422, "already exists");
            let is_lagging = error.says(422, "head invalid") || error.says(422, "head sha");
            looks += 1;
            if looks > LOOKS || !(exists || is_lagging || error.is_ambiguous()) {
                return Err(error);
            }
            sleep(self.client.pace().first_pause.saturating_mul(1 << looks.min(4))).await;
            if let Some(found) = self.find(&request.branch, request.runs()).await? {
                return Ok(found);
            }
        }
    }

    /// Sets what differs. Title and text stay if a person edited one of them, and so does the base branch; only the marker says
    /// then that the run is done.
    pub(super) async fn update(&self, pull: Pull, request: &PullRequest) -> Result<UpdatedPull, GitHubError> {
        let wanted = mark(&request.title, &request.body, &request.run, request.is_done);
        let present = pull.body.clone().unwrap_or_default().replace("\r\n", "\n");
        // An earlier run may have written the text that this one goes on with.
        let writer = run_of(&present).filter(|run| request.earlier_runs.contains(run));
        let writer = writer.unwrap_or_else(|| request.run.clone());
        let origin = origin(&pull.title, &present, &writer);
        let kept_text = origin != MarkedText::Ours;
        let mut changes = Map::new();
        let mut set = |name: &str, value: &str| changes.insert(name.to_owned(), Value::from(value));
        if !kept_text && present.trim_end() != wanted.trim_end() {
            set("body", &wanted);
        }
        if !kept_text && pull.title != request.title {
            set("title", &request.title);
        }
        if origin == MarkedText::Edited {
            let body = pull.body.as_deref().unwrap_or_default();
            let mut marked = with_run(body, &request.run);
            if request.is_done && !is_done(&marked, &request.run) {
                marked = with_done(&marked);
            }
            if marked != body {
                set("body", &marked);
            }
        }
        let pull = if changes.is_empty() {
            pull
        } else {
            let path = self.path(&format!("pulls/{}", pull.number));
            self.client.patch(&path, Value::Object(changes)).await?
        };
        Ok(UpdatedPull { pull, kept_text })
    }

    /// Adds the labels that are missing, unless a person removed them. Labels of people stay.
    pub(super) async fn add_labels(&self, pull: &Pull, labels: &[String]) -> Result<(), GitHubError> {
        let is_in = |known: &[LabelName], label: &str| {
            known.iter().any(|known| known.name.eq_ignore_ascii_case(label))
        };
        let missing = labels.iter().filter(|label| !is_in(&pull.labels, label));
        let mut missing: Vec<&String> = missing.collect();
        if missing.is_empty() {
            return Ok(());
        }
        let events: Vec<LabelEvent> = self
            .client
            .list(&self.path(&format!("issues/{}/events", pull.number)))
            .await?;
        let removed = events.into_iter().filter(|event| event.event == "unlabeled");
        let removed: Vec<LabelName> = removed.filter_map(|event| event.label).collect();
        missing.retain(|label| !is_in(&removed, label));
        if missing.is_empty() {
            return Ok(());
        }
        let path = self.path(&format!("issues/{}/labels", pull.number));
        self.client
            .add::<Value>(&path, json!({ "labels": missing }))
            .await
            .map(drop)
    }
}

/// How many other pull requests are looked at, newest first: each costs a call.
const MAX_OTHERS: usize = 30;

impl Pulls<'_> {
    /// Other open pull requests into a base branch that change some of these files.
    pub(super) async fn overlaps(
        &self,
        branch: &str,
        base: &str,
        files: &[String],
    ) -> Result<Vec<PullRequestOverlap>, GitHubError> {
        let path = self.path(&format!("pulls?state=open&base={}", url_part(base)));
        let others: Vec<Pull> = self.client.list(&path).await?;
        let others = others.into_iter().filter(|pull| pull.head.name != branch);
        let mut overlaps = Vec::new();
        for other in others.take(MAX_OTHERS) {
            let path = self.path(&format!("pulls/{}/files", other.number));
            let changed: Vec<PullFile> = self.client.list(&path).await?;
            let shared: Vec<String> = changed
                .into_iter()
                .map(|file| file.filename)
                .filter(|name| files.contains(name))
                .collect();
            if !shared.is_empty() {
                overlaps.push(PullRequestOverlap {
                    location: other.html_url,
                    files: shared,
                });
            }
        }
        Ok(overlaps)
    }
}

/// A pull request after an update.
pub(super) struct UpdatedPull {
    pub(super) pull: Pull,
    /// Whether its title and text were left as a person wrote them.
    pub(super) kept_text: bool,
}
