//! Issues as a queue: who may put one there, its status label, and one comment with the result.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::GitHubClient;
use super::error::GitHubError;
use super::marker::{is_done, whole_lines};
use super::wire::{Account, LabelName, Pull, PullState};
use crate::id::{RepositoryName, RunId};
use crate::text::url_part;

/// The label of an issue that is a specification.
const SPEC: &str = "spec";
/// The hidden first line of ralph's comment below an issue.
const MARKER: &str = "<!-- ralph-issue -->";
/// How ralph's comment below an issue begins that waits for others.
const WAITS: &str = "This waits for";
/// Longer comments are cut. GitHub refuses those above 65,536 characters.
const MAX_COMMENT: usize = 60_000;
/// How often a comment is tried whose answer was lost, and how often it is looked for each time.
const LOOKS: u32 = 4;

/// The issues of one repository.
pub struct Issues {
    pub(super) client: Arc<GitHubClient>,
    repository: RepositoryName,
}

/// An issue.
#[derive(Clone, Debug, Deserialize)]
pub struct Issue {
    /// Its number.
    pub number: u64,
    /// Its title.
    pub title: String,
    #[serde(default)]
    body: Option<String>,
    state: PullState,
    #[serde(default)]
    pub(super) labels: Vec<LabelName>,
    /// Its id in GraphQL.
    #[serde(default)]
    pub(super) node_id: String,
    user: Option<Account>,
    /// When anything about it changed last.
    pub updated_at: Timestamp,
    /// Set for pull requests, which GitHub lists as issues too.
    #[serde(default)]
    pull_request: Option<Value>,
    /// What GitHub itself knows about the issues that it waits for. Old servers do not say.
    #[serde(default, rename = "issue_dependencies_summary")]
    dependencies: Option<DependenciesSummary>,
}

#[derive(Clone, Debug, Deserialize)]
struct DependenciesSummary {
    total_blocked_by: u64,
}

impl Issue {
    /// Its text.
    #[must_use]
    pub fn body(&self) -> &str {
        self.body.as_deref().unwrap_or_default()
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == PullState::Open
    }

    /// Whether it has the label `spec`.
    #[must_use]
    pub fn is_specification(&self) -> bool {
        self.pull_request.is_none() && self.has_label(SPEC)
    }

    /// Whether it has the label of this status.
    #[must_use]
    pub fn has_status(&self, status: IssueStatus) -> bool {
        self.has_label(status.label())
    }

    /// Whether it has this label. GitHub ignores the case.
    #[must_use]
    pub fn has_label(&self, label: &str) -> bool {
        self.labels
            .iter()
            .any(|known| known.name.eq_ignore_ascii_case(label))
    }

    /// Whether this account opened it. GitHub ignores the case.
    #[must_use]
    pub fn is_by(&self, login: &str) -> bool {
        let author = self.user.as_ref();
        author.is_some_and(|author| author.login.eq_ignore_ascii_case(login))
    }
}

/// The status of a specification, which one of its labels shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueStatus {
    /// It can be worked on.
    Ready,
    /// A run works on it.
    InProgress,
    /// A run did all of it.
    Done,
    /// It needs a person.
    NeedsAttention,
    /// It waits for other issues, or a person holds it back.
    Blocked,
}

impl IssueStatus {
    /// All of them. An issue has one.
    pub(super) const ALL: [Self; 5] = [
        Self::Ready,
        Self::InProgress,
        Self::Done,
        Self::NeedsAttention,
        Self::Blocked,
    ];

    /// The label that shows it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Ready => "status:ready",
            Self::InProgress => "status:in-progress",
            Self::Done => "status:done",
            Self::NeedsAttention => "status:needs-attention",
            Self::Blocked => "status:blocked",
        }
    }
}

impl Issues {
    /// The issues of a repository.
    #[must_use]
    pub fn new(client: Arc<GitHubClient>, repository: RepositoryName) -> Self {
        Self { client, repository }
    }

    pub(super) fn path(&self, rest: &str) -> String {
        format!("repos/{}/{rest}", self.repository)
    }

    /// The issue with this number.
    pub async fn get(&self, number: u64) -> Result<Issue, GitHubError> {
        self.client.get(&self.path(&format!("issues/{number}"))).await
    }

    /// The open issues with the label `spec`, oldest first. GitHub does not count the calls if nothing has changed.
    pub async fn specifications(&self) -> Result<Vec<Issue>, GitHubError> {
        let path = self.path("issues?labels=spec&state=open&sort=created&direction=asc");
        let issues: Vec<Issue> = self.client.list_again(&path).await?;
        Ok(issues.into_iter().filter(Issue::is_specification).collect())
    }

    /// Why an issue must not be worked on, or `None` if it may. `status` is the one that it has to have: `Ready`, `Blocked`
    /// for one that ralph held back because it waited for others, or `InProgress` for one whose claim has ended.
    ///
    /// Its text becomes the prompt of an agent, so it must come from people with write permission. GitHub does not say who
    /// edited a text, but only the author and people with write permission can. So the author must have that permission,
    /// and so must those who set the labels.
    pub async fn refusal(&self, issue: &Issue, status: IssueStatus) -> Result<Option<String>, GitHubError> {
        let number = issue.number;
        if issue.pull_request.is_some() {
            return Ok(Some(format!("#{number} is a pull request")));
        }
        if !issue.is_open() {
            return Ok(Some(format!("issue #{number} is closed")));
        }
        if let Some(missing) = [SPEC, status.label()]
            .iter()
            .find(|label| !issue.has_label(label))
        {
            return Ok(Some(format!(
                "issue #{number} does not have the label `{missing}`"
            )));
        }
        if let Some(reason) = self.refusal_of_author(issue).await? {
            return Ok(Some(reason));
        }
        self.refusal_of_labels(number, status).await
    }

    /// Why the text of an issue does not count: only its author and people with write permission can edit it, so the author
    /// must have it too.
    pub async fn refusal_of_author(&self, issue: &Issue) -> Result<Option<String>, GitHubError> {
        if self.may_write(issue.user.as_ref()).await? {
            return Ok(None);
        }
        let (number, author) = (issue.number, name(issue.user.as_ref()));
        Ok(Some(format!(
            "the author of issue #{number}, {author}, does not have write permission"
        )))
    }

    /// Whether ralph blocked an issue because it waits for others. Otherwise a person did.
    async fn is_held_back(&self, number: u64) -> Result<bool, GitHubError> {
        let path = self.path(&format!("issues/{number}/comments"));
        let comment = self.comment(&path).await?.and_then(|comment| comment.body);
        let text = comment.as_deref().and_then(|body| body.strip_prefix(MARKER));
        Ok(text.is_some_and(|text| text.trim_start().starts_with(WAITS)))
    }

    /// Shows on an issue with this status that it waits for others. `false` if it does not have the status any more.
    pub async fn hold_back(
        &self,
        number: u64,
        status: IssueStatus,
        others: &str,
    ) -> Result<bool, GitHubError> {
        let text = format!("{WAITS} {others}. The work begins when they have the label `status:done`.");
        self.set_comment(number, &text).await?;
        let is_expected = |issue: &Issue| issue.has_status(status);
        self.set_status_if(number, IssueStatus::Blocked, is_expected)
            .await
    }

    /// Why the labels of an issue do not count.
    async fn refusal_of_labels(
        &self,
        number: u64,
        status: IssueStatus,
    ) -> Result<Option<String>, GitHubError> {
        let path = self.path(&format!("issues/{number}/events"));
        let events: Vec<IssueEvent> = self.client.list_again(&path).await?;
        let own = self.client.app_login().await?;
        // An App has no permission to ask for. What it sets follows from what a person set before.
        let is_own = |event: &IssueEvent| {
            event
                .actor
                .as_ref()
                .is_some_and(|actor| Some(actor.login.as_str()) == own)
        };
        if status == IssueStatus::Blocked && !self.is_held_back(number).await? {
            return Ok(Some(format!("issue #{number} is blocked by a person")));
        }
        // GitHub lists the oldest first.
        for label in [SPEC, IssueStatus::Ready.label()] {
            let set = events
                .iter()
                .rev()
                .find(|event| event.sets(label) && !is_own(event));
            let actor = set.and_then(|event| event.actor.as_ref());
            if !self.may_write(actor).await? {
                let actor = name(actor);
                return Ok(Some(format!(
                    "the label `{label}` of issue #{number} was set by {actor}, who does not have write permission"
                )));
            }
        }
        Ok(None)
    }

    /// Whether an account has write permission now.
    pub(super) async fn may_write(&self, account: Option<&Account>) -> Result<bool, GitHubError> {
        let Some(account) = account else {
            return Ok(false);
        };
        let path = self.path(&format!("collaborators/{}/permission", url_part(&account.login)));
        let found: Permission = match self.client.get_again(&path).await {
            Err(error) if error.status() == Some(404) => return Ok(false),
            found => found?,
        };
        Ok(matches!(
            found.permission.as_str(),
            "admin" | "write" | "maintain"
        ))
    }

    /// The issues that an issue waits for: those of `numbers` whose labels do not include `status:done`, and open ones
    /// without it that GitHub itself knows as its blockers.
    ///
    /// `listed` are issues that were just read.
    pub async fn unfinished(
        &self,
        issue: &Issue,
        numbers: &[u64],
        listed: &[Issue],
    ) -> Result<Vec<u64>, GitHubError> {
        let is_unfinished = |blocker: &&Issue| blocker.is_open() && !blocker.has_status(IssueStatus::Done);
        let blockers = self.blockers(issue).await?;
        let mut unfinished: Vec<u64> = blockers
            .iter()
            .filter(is_unfinished)
            .map(|blocker| blocker.number)
            .collect();
        for number in numbers {
            let known = listed.iter().find(|listed| listed.number == *number);
            let is_done = if let Some(known) = known {
                known.has_status(IssueStatus::Done)
            } else {
                let path = self.path(&format!("issues/{number}"));
                let other: Issue = self.client.get_again(&path).await?;
                other.has_status(IssueStatus::Done)
            };
            if !is_done {
                unfinished.push(*number);
            }
        }
        unfinished.sort_unstable();
        unfinished.dedup();
        Ok(unfinished)
    }

    /// The issues that GitHub itself knows as blockers.
    async fn blockers(&self, issue: &Issue) -> Result<Vec<Issue>, GitHubError> {
        let summary = issue.dependencies.as_ref();
        if summary.is_some_and(|summary| summary.total_blocked_by == 0) {
            return Ok(Vec::new());
        }
        let path = self.path(&format!("issues/{}/dependencies/blocked_by", issue.number));
        match self.client.list_again(&path).await {
            // Old servers do not know dependencies.
            Err(error) if error.status() == Some(404) => Ok(Vec::new()),
            blockers => blockers,
        }
    }

    /// The pull request of a run that was done, as its marker says. Whether it is a draft says nothing: not every server has
    /// drafts, and a task can ask for one.
    pub async fn finished_pull_request(&self, run: &RunId) -> Result<Option<String>, GitHubError> {
        let path = self.path("pulls?state=all&sort=created&direction=desc&per_page=100");
        let pulls: Vec<Pull> = self.client.get(&path).await?;
        let is_finished = |pull: &&Pull| {
            let body = pull.body.as_deref().unwrap_or_default();
            let is_over = pull.state == PullState::Closed && pull.merged_at.is_none();
            // Anyone can write a marker into the text of a pull request from a fork.
            let is_here = pull.head.is_in(&self.repository);
            is_here && !is_over && is_done(body, run)
        };
        Ok(pulls.iter().find(is_finished).map(|pull| pull.html_url.clone()))
    }

    /// Sets the text of ralph's comment below an issue. There is one, which is found again by its hidden marker.
    pub async fn set_comment(&self, number: u64, text: &str) -> Result<(), GitHubError> {
        let text = if text.len() > MAX_COMMENT {
            whole_lines(text, MAX_COMMENT)
        } else {
            text.to_owned()
        };
        let body = format!("{MARKER}\n{text}");
        let path = self.path(&format!("issues/{number}/comments"));
        let mut looks = 0;
        loop {
            if let Some(comment) = self.comment(&path).await? {
                if comment.body.as_ref() == Some(&body) {
                    return Ok(());
                }
                let path = self.path(&format!("issues/comments/{}", comment.id));
                return self
                    .client
                    .patch::<Value>(&path, json!({"body": body}))
                    .await
                    .map(drop);
            }
            let Err(error) = self.client.post::<Value>(&path, json!({"body": body})).await else {
                return Ok(());
            };
            looks += 1;
            if looks > LOOKS || !error.is_ambiguous() {
                return Err(error);
            }
            // Lists may lack a new comment for some seconds, and GitHub refuses no second one.
            for wait in 1..=LOOKS {
                sleep(self.client.pace().first_pause.saturating_mul(1 << wait)).await;
                if self.comment(&path).await?.is_some() {
                    break;
                }
            }
        }
    }

    /// Ralph's comment. A comment of an outsider with the same marker does not count.
    async fn comment(&self, path: &str) -> Result<Option<IssueComment>, GitHubError> {
        let comments: Vec<IssueComment> = self.client.list_again(path).await?;
        let is_ours = |comment: &IssueComment| {
            let text = comment.body.as_deref().unwrap_or_default();
            let is_program = comment.user.as_ref().is_some_and(Account::is_program);
            let is_member = matches!(
                comment.author_association.as_str(),
                "OWNER" | "MEMBER" | "COLLABORATOR"
            );
            text.starts_with(MARKER) && (is_program || is_member)
        };
        Ok(comments.into_iter().find(is_ours))
    }
}

fn name(account: Option<&Account>) -> String {
    account.map_or_else(
        || "a deleted account".to_owned(),
        |account| format!("@{}", account.login),
    )
}

#[derive(Deserialize)]
struct Permission {
    permission: String,
}

#[derive(Deserialize)]
struct IssueEvent {
    event: String,
    actor: Option<Account>,
    #[serde(default)]
    label: Option<LabelName>,
}

impl IssueEvent {
    fn sets(&self, label: &str) -> bool {
        let named = self.label.as_ref();
        self.event == "labeled" && named.is_some_and(|named| named.name.eq_ignore_ascii_case(label))
    }
}

#[derive(Deserialize)]
struct IssueComment {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    user: Option<Account>,
    #[serde(default)]
    author_association: String,
}
