//! Reviews of a pull request: what people with write permission ask for, and one answer to each thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::GitHubClient;
use super::error::GitHubError;
use super::issues::Issues;
use super::marker::run_of;
use super::pulls::Pulls;
use super::wire::{Account, Pull, PullBranch, PullState};
use crate::id::{RepositoryName, RunId};
use crate::scm::{ReviewAnswer, ReviewComment, ReviewPlace};

/// How everything begins that ralph writes below a pull request or an issue.
const OWN: &str = "<!-- ralph-";
/// How often an answer is tried whose response was lost, and how often it is looked for each time.
const LOOKS: u32 = 4;

/// The reviews of one repository.
pub struct Reviews {
    client: Arc<GitHubClient>,
    repository: RepositoryName,
    people: Issues,
}

/// A pull request that may have reviews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewedPull {
    /// Its number.
    pub number: u64,
    /// Its branch, without `refs/heads/`. `None` if that is in another repository.
    pub branch: Option<String>,
    /// Its URL.
    pub location: String,
    /// The run that its hidden marker names.
    pub run: Option<RunId>,
    /// `closed` or `merged`, if it is not open any more.
    pub ended: Option<&'static str>,
}

/// An open pull request of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPull {
    /// Its number.
    pub number: u64,
    /// The run that its hidden marker names.
    pub run: RunId,
    /// When anything about it changed last.
    pub updated_at: Timestamp,
}

#[derive(Deserialize)]
struct ListedPull {
    number: u64,
    #[serde(default)]
    body: Option<String>,
    head: PullBranch,
    updated_at: Timestamp,
}

/// What was found below a pull request.
#[derive(Debug, Default)]
pub struct FoundReviews {
    /// What people with write permission ask for, oldest first.
    pub comments: Vec<ReviewComment>,
    /// How many comments are left out because their authors do not have write permission.
    pub ignored: usize,
}

impl Reviews {
    /// The reviews of a repository.
    #[must_use]
    pub fn new(client: Arc<GitHubClient>, repository: RepositoryName) -> Self {
        let people = Issues::new(client.clone(), repository.clone());
        Self {
            client,
            repository,
            people,
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("repos/{}/{rest}", self.repository)
    }

    /// The open pull requests of runs, by their markers, that are not from forks. GitHub does not count the call if nothing has
    /// changed.
    pub async fn open(&self) -> Result<Vec<OpenPull>, GitHubError> {
        let path = self.path("pulls?state=open");
        let pulls: Vec<ListedPull> = self.client.list_again(&path).await?;
        let here = pulls.into_iter().filter(|pull| pull.head.is_in(&self.repository));
        let open = here.filter_map(|pull| {
            Some(OpenPull {
                number: pull.number,
                run: run_of(pull.body.as_deref().unwrap_or_default())?,
                updated_at: pull.updated_at,
            })
        });
        Ok(open.collect())
    }

    /// The pull request with this number, if there is one.
    pub async fn pull(&self, number: u64) -> Result<Option<ReviewedPull>, GitHubError> {
        let pull: Option<Pull> = self.client.find(&self.path(&format!("pulls/{number}"))).await?;
        Ok(pull.map(ReviewedPull::from))
    }

    /// The pull request of a run's branch, if there is one.
    pub async fn pull_of_run(&self, branch: &str, run: &RunId) -> Result<Option<ReviewedPull>, GitHubError> {
        let pulls = Pulls {
            client: &self.client,
            repository: &self.repository,
        };
        let pull = pulls.find(branch, std::iter::once(run)).await?;
        Ok(pull.map(ReviewedPull::from))
    }

    /// What people with write permission ask for and `is_known` does not know. Programs and ralph itself are no reviewers. What
    /// a reviewer wrote before their last approval is settled, and so is a thread that is resolved.
    pub async fn comments(
        &self,
        number: u64,
        is_known: impl Fn(&ReviewComment) -> bool,
    ) -> Result<FoundReviews, GitHubError> {
        let mut found = FoundReviews::default();
        let mut permissions: BTreeMap<String, bool> = BTreeMap::new();
        let mut new: Vec<(ReviewComment, Option<Account>)> = Vec::new();
        for said in self.all(number).await? {
            if let Some(comment) = said.comment().filter(|comment| !is_known(comment)) {
                new.push((comment, said.user));
            }
        }
        if new.iter().any(|(comment, _)| comment.thread().is_some()) {
            let resolved = self.client.resolved_threads(&self.repository, number).await?;
            let is_resolved =
                |comment: &ReviewComment| comment.thread().is_some_and(|thread| resolved.contains(&thread));
            new.retain(|(comment, _)| !is_resolved(comment));
        }
        for (comment, author) in new {
            let may_write = match permissions.get(&comment.author) {
                Some(may_write) => *may_write,
                None => self.people.may_write(author.as_ref()).await?,
            };
            permissions.insert(comment.author.clone(), may_write);
            if may_write {
                found.comments.push(comment);
            } else {
                found.ignored += 1;
            }
        }
        Ok(found)
    }

    /// Everything that still counts below a pull request, oldest first.
    async fn all(&self, number: u64) -> Result<Vec<Said>, GitHubError> {
        let reviews: Vec<Review> = self
            .client
            .list(&self.path(&format!("pulls/{number}/reviews")))
            .await?;
        let lines: Vec<LineComment> = self
            .client
            .list(&self.path(&format!("pulls/{number}/comments")))
            .await?;
        let below: Vec<Below> = self
            .client
            .list(&self.path(&format!("issues/{number}/comments")))
            .await?;
        let standing = Standing::of(&reviews);
        let mut said: Vec<Said> = Vec::new();
        for comment in lines {
            let at = standing.submitted(comment.pull_request_review_id);
            said.push(comment.said(at));
        }
        let is_asked = |review: &Review| standing.asks(review);
        said.extend(reviews.into_iter().filter(is_asked).map(Review::said));
        said.extend(below.into_iter().map(Below::said));
        said.retain(|said| !standing.is_settled(said));
        said.sort_by_key(|said| said.at);
        Ok(said)
    }

    /// Answers in a thread or below the pull request, once. Returns GitHub's reason if it refuses that.
    pub async fn answer(&self, answer: &ReviewAnswer) -> Result<Option<String>, GitHubError> {
        let number = answer.pull_request;
        let path = match answer.thread {
            Some(thread) => self.path(&format!("pulls/{number}/comments/{thread}/replies")),
            None => self.path(&format!("issues/{number}/comments")),
        };
        let body = json!({"body": format!("{}\n{}", marker(answer), answer.text)});
        let mut looks = 0;
        loop {
            if self.has(answer).await? {
                return Ok(None);
            }
            let Err(error) = self.client.post::<Value>(&path, body.clone()).await else {
                return Ok(None);
            };
            if matches!(error.status(), Some(403 | 404 | 410 | 422)) {
                return Ok(Some(error.with_hint()));
            }
            looks += 1;
            if looks > LOOKS || !error.is_ambiguous() {
                return Err(error);
            }
            // Lists may lack a new comment for some seconds, and GitHub refuses no second one.
            for wait in 1..=LOOKS {
                sleep(self.client.pace().first_pause.saturating_mul(1 << wait)).await;
                if self.has(answer).await? {
                    return Ok(None);
                }
            }
        }
    }

    /// Whether the answer is there. A comment of an outsider with the same marker does not count.
    async fn has(&self, answer: &ReviewAnswer) -> Result<bool, GitHubError> {
        let number = answer.pull_request;
        let path = match answer.thread {
            Some(_) => self.path(&format!("pulls/{number}/comments")),
            None => self.path(&format!("issues/{number}/comments")),
        };
        let comments: Vec<Posted> = self.client.list(&path).await?;
        let marker = marker(answer);
        for comment in comments {
            let text = comment.body.as_deref().unwrap_or_default();
            if comment.in_reply_to_id != answer.thread || !text.starts_with(&marker) {
                continue;
            }
            let is_program = comment.user.as_ref().is_some_and(Account::is_program);
            if is_program || self.people.may_write(comment.user.as_ref()).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The hidden first line of an answer.
fn marker(answer: &ReviewAnswer) -> String {
    format!("{OWN}answer: {} {} -->", answer.run, answer.round)
}

impl From<Pull> for ReviewedPull {
    fn from(pull: Pull) -> Self {
        let is_own = pull.is_within_repository();
        Self {
            number: pull.number,
            branch: is_own.then_some(pull.head.name),
            location: pull.html_url,
            run: pull.body.as_deref().and_then(run_of),
            ended: match (pull.state, pull.merged_at) {
                (PullState::Open, _) => None,
                (PullState::Closed, Some(_)) => Some("merged"),
                (PullState::Closed, None) => Some("closed"),
            },
        }
    }
}

/// What a person, or a program, wrote.
struct Said {
    place: ReviewPlace,
    id: u64,
    user: Option<Account>,
    text: String,
    at: Timestamp,
}

impl Said {
    /// It as a comment of a reviewer. `None` for programs, deleted accounts, ralph's own words and empty ones.
    fn comment(&self) -> Option<ReviewComment> {
        let user = self.user.as_ref().filter(|user| !user.is_program())?;
        let text = self.text.trim();
        let is_said = !text.is_empty() && !text.starts_with(OWN);
        is_said.then(|| ReviewComment {
            place: self.place.clone(),
            id: self.id,
            author: user.login.clone(),
            text: text.to_owned(),
        })
    }
}

/// What the reviews decide: the newest decision of each reviewer, and when they approved.
#[derive(Default)]
struct Standing {
    /// The newest review of each reviewer that approves, requests changes or was dismissed.
    decisions: BTreeMap<String, u64>,
    approved: BTreeMap<String, Timestamp>,
    submitted: BTreeMap<u64, Timestamp>,
}

impl Standing {
    fn of(reviews: &[Review]) -> Self {
        let mut standing = Self::default();
        // GitHub lists the oldest first.
        for review in reviews {
            let (Some(user), Some(at)) = (&review.user, review.submitted_at) else {
                continue;
            };
            standing.submitted.insert(review.id, at);
            if review.state == ReviewState::Approved {
                standing.approved.insert(user.login.clone(), at);
            }
            if !matches!(review.state, ReviewState::Commented | ReviewState::Other) {
                standing.decisions.insert(user.login.clone(), review.id);
            }
        }
        standing
    }

    /// When a review was sent. Its comments on lines may have been written long before.
    fn submitted(&self, review: Option<u64>) -> Option<Timestamp> {
        self.submitted.get(&review?).copied()
    }

    /// Whether the text of a review asks for something: it requests changes and is the newest decision of its reviewer, or it
    /// is a comment.
    fn asks(&self, review: &Review) -> bool {
        let newest = |user: &Account| self.decisions.get(&user.login) == Some(&review.id);
        match review.state {
            ReviewState::ChangesRequested => review.user.as_ref().is_some_and(newest),
            ReviewState::Commented => true,
            ReviewState::Approved | ReviewState::Dismissed | ReviewState::Other => false,
        }
    }

    /// Whether its author approved the pull request later.
    fn is_settled(&self, said: &Said) -> bool {
        let approved = said.user.as_ref().and_then(|user| self.approved.get(&user.login));
        approved.is_some_and(|approved| said.at < *approved)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Review {
    id: u64,
    user: Option<Account>,
    #[serde(default)]
    body: Option<String>,
    state: ReviewState,
    /// `None` while its author still writes it.
    #[serde(default)]
    submitted_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ReviewState {
    Approved,
    ChangesRequested,
    Commented,
    Dismissed,
    /// One that is not sent yet, or a state that ralph does not know.
    #[serde(other)]
    Other,
}

impl Review {
    fn said(self) -> Said {
        Said {
            place: ReviewPlace::Review,
            id: self.id,
            user: self.user,
            text: self.body.unwrap_or_default(),
            at: self.submitted_at.unwrap_or(Timestamp::MIN),
        }
    }
}

/// A comment on a line of a file.
#[derive(Debug, Deserialize)]
pub(super) struct LineComment {
    id: u64,
    user: Option<Account>,
    body: String,
    path: String,
    /// `None` if the line is gone.
    #[serde(default)]
    line: Option<u64>,
    #[serde(default)]
    original_line: Option<u64>,
    /// The first comment of the thread.
    #[serde(default)]
    in_reply_to_id: Option<u64>,
    pull_request_review_id: Option<u64>,
    created_at: Timestamp,
}

impl LineComment {
    fn said(self, submitted: Option<Timestamp>) -> Said {
        Said {
            place: ReviewPlace::Thread {
                thread: self.in_reply_to_id.unwrap_or(self.id),
                path: self.path,
                line: self.line.or(self.original_line),
            },
            id: self.id,
            user: self.user,
            text: self.body,
            at: submitted.unwrap_or(self.created_at),
        }
    }
}

/// A comment below the pull request.
#[derive(Debug, Deserialize)]
pub(super) struct Below {
    id: u64,
    user: Option<Account>,
    #[serde(default)]
    body: Option<String>,
    created_at: Timestamp,
}

impl Below {
    fn said(self) -> Said {
        Said {
            place: ReviewPlace::Discussion,
            id: self.id,
            user: self.user,
            text: self.body.unwrap_or_default(),
            at: self.created_at,
        }
    }
}

/// A comment that may be an answer of ralph.
#[derive(Deserialize)]
struct Posted {
    user: Option<Account>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    in_reply_to_id: Option<u64>,
}
