//! Issues as a queue: who may put one there, its status label, and one comment with the result.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::GitHubClient;
use super::error::GitHubError;
use super::marker::whole_lines;
use super::pulls::query_value;
use super::wire::{LabelName, PullState};
use crate::id::RepositoryName;

/// The label of an issue that is a specification.
const SPEC: &str = "spec";
/// The hidden first line of ralph's comment below an issue.
const MARKER: &str = "<!-- ralph-issue -->";
/// Longer comments are cut. GitHub refuses those above 65,536 characters.
const MAX_COMMENT: usize = 60_000;
/// How often a comment is tried whose answer was lost, and how often it is looked for each time.
const LOOKS: u32 = 4;

/// The issues of one repository.
pub struct Issues {
    client: Arc<GitHubClient>,
    repository: RepositoryName,
}

/// An issue.
#[derive(Debug, Deserialize)]
pub struct Issue {
    /// Its number.
    pub number: u64,
    /// Its title.
    pub title: String,
    #[serde(default)]
    body: Option<String>,
    state: PullState,
    #[serde(default)]
    labels: Vec<LabelName>,
    user: Option<Account>,
    /// Set for pull requests, which GitHub lists as issues too.
    #[serde(default)]
    pull_request: Option<Value>,
}

impl Issue {
    /// Its text.
    #[must_use]
    pub fn body(&self) -> &str {
        self.body.as_deref().unwrap_or_default()
    }

    fn has_label(&self, label: &str) -> bool {
        self.labels
            .iter()
            .any(|known| known.name.eq_ignore_ascii_case(label))
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
}

impl IssueStatus {
    /// The labels of which an issue has one. `status:blocked` is set by people.
    const LABELS: [&'static str; 5] = [
        "status:ready",
        "status:in-progress",
        "status:done",
        "status:needs-attention",
        "status:blocked",
    ];

    /// The label that shows it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Ready => "status:ready",
            Self::InProgress => "status:in-progress",
            Self::Done => "status:done",
            Self::NeedsAttention => "status:needs-attention",
        }
    }
}

impl Issues {
    /// The issues of a repository.
    #[must_use]
    pub fn new(client: Arc<GitHubClient>, repository: RepositoryName) -> Self {
        Self { client, repository }
    }

    fn path(&self, rest: &str) -> String {
        format!("repos/{}/{rest}", self.repository)
    }

    /// The issue with this number.
    pub async fn get(&self, number: u64) -> Result<Issue, GitHubError> {
        self.client.get(&self.path(&format!("issues/{number}"))).await
    }

    /// Why an issue must not be worked on, or `None` if it may.
    ///
    /// Its text becomes the prompt of an agent, so it must come from people with write permission. GitHub does not say who
    /// edited a text, but only the author and people with write permission can. So the author must have that permission,
    /// and so must those who set the labels.
    pub async fn refusal(&self, issue: &Issue) -> Result<Option<String>, GitHubError> {
        let number = issue.number;
        if issue.pull_request.is_some() {
            return Ok(Some(format!("#{number} is a pull request")));
        }
        if issue.state == PullState::Closed {
            return Ok(Some(format!("issue #{number} is closed")));
        }
        let labels = [SPEC, IssueStatus::Ready.label()];
        if let Some(missing) = labels.iter().find(|label| !issue.has_label(label)) {
            return Ok(Some(format!(
                "issue #{number} does not have the label `{missing}`"
            )));
        }
        if !self.may_write(issue.user.as_ref()).await? {
            let author = name(issue.user.as_ref());
            return Ok(Some(format!(
                "the author of issue #{number}, {author}, does not have write permission"
            )));
        }
        let path = self.path(&format!("issues/{number}/events"));
        let events: Vec<IssueEvent> = self.client.list(&path).await?;
        for label in labels {
            // GitHub lists the oldest first.
            let set = events.iter().rev().find(|event| event.sets(label));
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

    async fn may_write(&self, account: Option<&Account>) -> Result<bool, GitHubError> {
        let Some(account) = account else {
            return Ok(false);
        };
        let path = self.path(&format!(
            "collaborators/{}/permission",
            query_value(&account.login)
        ));
        let found: Option<Permission> = self.client.find(&path).await?;
        Ok(found.is_some_and(|found| matches!(found.permission.as_str(), "admin" | "write" | "maintain")))
    }

    /// The issues that an issue waits for: those of `numbers` whose labels do not include `status:done`, and open ones
    /// without it that GitHub itself knows as its blockers.
    pub async fn unfinished(&self, issue: u64, numbers: &[u64]) -> Result<Vec<u64>, GitHubError> {
        let path = self.path(&format!("issues/{issue}/dependencies/blocked_by"));
        let blockers: Vec<Issue> = match self.client.list(&path).await {
            // Old servers do not know dependencies.
            Err(error) if error.status() == Some(404) => Vec::new(),
            blockers => blockers?,
        };
        let is_unfinished = |blocker: &&Issue| {
            blocker.state == PullState::Open && !blocker.has_label(IssueStatus::Done.label())
        };
        let mut unfinished: Vec<u64> = blockers
            .iter()
            .filter(is_unfinished)
            .map(|blocker| blocker.number)
            .collect();
        for number in numbers {
            if !self.get(*number).await?.has_label(IssueStatus::Done.label()) {
                unfinished.push(*number);
            }
        }
        unfinished.sort_unstable();
        unfinished.dedup();
        Ok(unfinished)
    }

    /// Sets the status label and removes other ones. All other labels stay.
    pub async fn set_status(&self, number: u64, status: IssueStatus) -> Result<(), GitHubError> {
        let issue = self.get(number).await?;
        let wanted = status.label();
        let path = self.path(&format!("issues/{number}/labels"));
        if !issue.has_label(wanted) {
            self.client
                .add::<Value>(&path, json!({"labels": [wanted]}))
                .await?;
        }
        let others = IssueStatus::LABELS.into_iter().filter(|label| *label != wanted);
        for label in others.filter(|label| issue.has_label(label)) {
            self.client
                .remove(&format!("{path}/{}", query_value(label)))
                .await?;
        }
        Ok(())
    }

    /// Replaces the text of an issue.
    pub async fn set_body(&self, number: u64, body: &str) -> Result<(), GitHubError> {
        let path = self.path(&format!("issues/{number}"));
        self.client
            .patch::<Value>(&path, json!({"body": body}))
            .await
            .map(drop)
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
        let comments: Vec<IssueComment> = self.client.list(path).await?;
        let is_ours = |comment: &IssueComment| {
            let text = comment.body.as_deref().unwrap_or_default();
            let is_bot = comment
                .user
                .as_ref()
                .is_some_and(|user| user.login.ends_with("[bot]"));
            let is_member = matches!(
                comment.author_association.as_str(),
                "OWNER" | "MEMBER" | "COLLABORATOR"
            );
            text.starts_with(MARKER) && (is_bot || is_member)
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

#[derive(Debug, Deserialize)]
struct Account {
    login: String,
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
