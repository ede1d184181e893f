//! Claims on issues: which process works on an issue, decided by git refs that GitHub moves atomically.
//!
//! A claim is a ref `refs/ralph/claims/<issue>` to a commit whose message says who has it and until when. Creating the ref
//! wins. Each renewal is a child commit, and the ref moves by fast-forward only, so a process whose claim was taken over
//! cannot renew it any more.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use super::client::GitHubClient;
use super::error::GitHubError;
use super::pulls::query_value;
use crate::id::{RepositoryName, RunId};

/// A claim is taken over this part of a lease after its end at the earliest, for clocks that differ.
const MARGIN: i32 = 15;
/// How often GitHub is asked again after lost answers and lost races.
const LOOKS: u32 = 6;

/// The claims of one process in one repository.
pub struct Claims {
    client: Arc<GitHubClient>,
    repository: RepositoryName,
    owner: String,
    lease: SignedDuration,
    /// The tree of all commits of claims.
    tree: OnceCell<String>,
}

/// What the commit of a claim says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// The process that has it.
    pub owner: String,
    /// The number of owners so far, from 1.
    pub epoch: u64,
    /// When it ends, unless it is renewed.
    pub until: Timestamp,
    /// The run that works on the issue, once it exists.
    pub run: Option<RunId>,
}

/// A claim of this process.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The number of the issue.
    pub issue: u64,
    /// What its newest commit says.
    pub record: ClaimRecord,
    /// What it said before, if this process took it over.
    pub taken_from: Option<ClaimRecord>,
    sha: String,
    tree: String,
}

/// The result of an attempt to claim an issue.
#[derive(Debug)]
pub enum ClaimAttempt {
    /// This process has the claim.
    Won(Claim),
    /// Another process has it.
    Held(ClaimRecord),
}

impl Claims {
    /// Claims for a process that is called `owner`. A claim ends after `lease`, unless it is renewed.
    #[must_use]
    pub fn new(
        client: Arc<GitHubClient>,
        repository: RepositoryName,
        owner: &str,
        lease: SignedDuration,
    ) -> Self {
        // Two processes with the same words would make the same commit, and both would find it theirs.
        let owner = format!("{owner} {:016x}", fastrand::u64(..));
        Self {
            client,
            repository,
            owner,
            lease,
            tree: OnceCell::new(),
        }
    }

    /// How long a claim holds after its last renewal.
    #[must_use]
    pub fn lease(&self) -> SignedDuration {
        self.lease
    }

    /// The issues with a claim that has ended: the process that made it is gone.
    pub async fn ended(&self) -> Result<Vec<u64>, GitHubError> {
        let prefix = query_value("ralph/claims/");
        let path = format!("repos/{}/git/matching-refs/{prefix}", self.repository);
        let refs: Vec<GitRef> = self.client.get_again(&path).await?;
        let mut ended = Vec::new();
        for found in refs {
            let number = found.name.strip_prefix("refs/ralph/claims/");
            let Some(issue) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            if self.has_ended(&self.read(issue, &found.object.sha).await?.record) {
                ended.push(issue);
            }
        }
        Ok(ended)
    }

    /// Removes the claim on an issue, if it has ended.
    pub async fn remove_ended(&self, issue: u64) -> Result<(), GitHubError> {
        match self.claim(issue).await? {
            ClaimAttempt::Won(claim) => self.release(claim).await,
            ClaimAttempt::Held(_) => Ok(()),
        }
    }

    fn has_ended(&self, record: &ClaimRecord) -> bool {
        let margin = self.lease / MARGIN;
        self.client.now() > record.until.saturating_add(margin).unwrap_or(Timestamp::MAX)
    }

    /// Claims an issue, or says who has it. A claim that has ended is taken over.
    pub async fn claim(&self, issue: u64) -> Result<ClaimAttempt, GitHubError> {
        let mut looks = 0;
        loop {
            let held = self.held(issue).await?;
            // The owner is random, so a claim of this name was made here, and its answer was lost.
            if let Some(held) = held.as_ref().filter(|held| held.record.owner == self.owner) {
                return Ok(ClaimAttempt::Won(held.clone()));
            }
            if let Some(held) = held.as_ref().filter(|held| !self.has_ended(&held.record)) {
                return Ok(ClaimAttempt::Held(held.record.clone()));
            }
            let child = self.child(issue, held.as_ref(), None).await?;
            let moved = match &held {
                None => self.create(&child).await,
                Some(_) => self.advance(&child).await,
            };
            let error = match moved {
                Ok(()) => {
                    return Ok(ClaimAttempt::Won(Claim {
                        taken_from: held.map(|held| held.record),
                        ..child
                    }));
                }
                Err(error) => error,
            };
            looks += 1;
            if looks > LOOKS || !(error.status() == Some(422) || error.is_ambiguous()) {
                return Err(error);
            }
            self.pause(looks).await;
        }
    }

    /// Extends a claim and records its run. Fails with [`GitHubError::ClaimLost`] if another process has taken it over.
    pub async fn renew(&self, claim: &mut Claim, run: Option<RunId>) -> Result<(), GitHubError> {
        let mut looks = 0;
        loop {
            let child = self.child(claim.issue, Some(claim), run.clone()).await?;
            let error = match self.advance(&child).await {
                Ok(()) => {
                    *claim = child;
                    return Ok(());
                }
                Err(error) => error,
            };
            looks += 1;
            if looks > LOOKS || !(error.status() == Some(422) || error.is_ambiguous()) {
                return Err(error);
            }
            match self.held(claim.issue).await? {
                // It arrived, or another renewal of this process did whose answer was lost, or none.
                Some(held) if held.record.owner == self.owner => {
                    let arrived = held.sha == child.sha;
                    *claim = held;
                    if arrived {
                        return Ok(());
                    }
                    self.pause(looks).await;
                }
                held => {
                    return Err(GitHubError::ClaimLost {
                        issue: claim.issue,
                        owner: held.map(|held| held.record.owner),
                    });
                }
            }
        }
    }

    /// Gives a claim up. One that another process has taken over is left alone.
    pub async fn release(&self, mut claim: Claim) -> Result<(), GitHubError> {
        // GitHub deletes a ref whatever it points to. After a renewal no other process moves it for the time of a lease.
        let half = self.client.now().saturating_add(self.lease / 2);
        if half.is_ok_and(|half| claim.record.until > half) {
            let held = self.held(claim.issue).await?;
            if held.is_none_or(|held| held.sha != claim.sha) {
                return Ok(());
            }
        } else {
            let run = claim.record.run.clone();
            match self.renew(&mut claim, run).await {
                Err(GitHubError::ClaimLost { .. }) => return Ok(()),
                renewed => renewed?,
            }
        }
        let path = self.ref_path("refs", claim.issue);
        let mut looks = 0;
        loop {
            // Not repeated unseen: a second one could delete the claim of a process that came in between.
            let deletion = self.client.delete_once(&path);
            // A deletion that waits for the pace or a limit longer than the lease could hit the next claim. This one ends then.
            let Ok(deleted) = timeout(self.lease.unsigned_abs() / 3, deletion).await else {
                return Ok(());
            };
            let error = match deleted {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_ours = self
                .held(claim.issue)
                .await?
                .is_some_and(|held| held.sha == claim.sha);
            looks += 1;
            if !is_ours {
                return Ok(());
            }
            if looks > LOOKS || !error.is_ambiguous() {
                return Err(error);
            }
            self.pause(looks).await;
        }
    }

    /// The claim on an issue, of any process.
    async fn held(&self, issue: u64) -> Result<Option<Claim>, GitHubError> {
        let path = self.ref_path("ref", issue);
        let Some(found) = self.client.find::<GitRef>(&path).await? else {
            return Ok(None);
        };
        self.read(issue, &found.object.sha).await.map(Some)
    }

    /// The claim in this commit.
    async fn read(&self, issue: u64, commit: &str) -> Result<Claim, GitHubError> {
        let path = format!("repos/{}/git/commits/{commit}", self.repository);
        let commit: GitCommit = self.client.get_again(&path).await?;
        let record = serde_json::from_str(&commit.message).map_err(|error| GitHubError::Response {
            call: format!("GET /{path}"),
            source: format!("the ref `refs/ralph/claims/{issue}` is not a claim of ralph: {error}").into(),
        })?;
        Ok(Claim {
            issue,
            record,
            taken_from: None,
            sha: commit.sha,
            tree: commit.tree.sha,
        })
    }

    /// A commit after `parent` for this process. A claim of another one gets a new epoch.
    async fn child(
        &self,
        issue: u64,
        parent: Option<&Claim>,
        run: Option<RunId>,
    ) -> Result<Claim, GitHubError> {
        let epoch = match parent.map(|parent| &parent.record) {
            None => 1,
            Some(record) if record.owner == self.owner => record.epoch,
            Some(record) => record.epoch.saturating_add(1),
        };
        let record = ClaimRecord {
            owner: self.owner.clone(),
            epoch,
            until: self
                .client
                .now()
                .saturating_add(self.lease)
                .unwrap_or(Timestamp::MAX),
            run,
        };
        let tree = match parent {
            Some(parent) => parent.tree.clone(),
            None => self.tree.get_or_try_init(|| self.create_tree()).await?.clone(),
        };
        let parents: Vec<&str> = parent.iter().map(|parent| parent.sha.as_str()).collect();
        let body = json!({"message": json!(record).to_string(), "tree": tree, "parents": parents});
        // A second commit that no ref points to is harmless.
        let path = format!("repos/{}/git/commits", self.repository);
        let commit: GitCommit = self.client.add(&path, body).await?;
        Ok(Claim {
            issue,
            record,
            taken_from: None,
            sha: commit.sha,
            tree,
        })
    }

    /// GitHub refuses an empty tree.
    async fn create_tree(&self) -> Result<String, GitHubError> {
        let content = "Commits here are claims of ralph on issues. Their messages say who works on one.\n";
        let entry = json!({"path": "README", "mode": "100644", "type": "blob", "content": content});
        let path = format!("repos/{}/git/trees", self.repository);
        let tree: GitObject = self.client.add(&path, json!({"tree": [entry]})).await?;
        Ok(tree.sha)
    }

    async fn create(&self, claim: &Claim) -> Result<(), GitHubError> {
        let body = json!({"ref": format!("refs/ralph/claims/{}", claim.issue), "sha": claim.sha});
        let path = format!("repos/{}/git/refs", self.repository);
        self.client.post::<Value>(&path, body).await.map(drop)
    }

    async fn advance(&self, claim: &Claim) -> Result<(), GitHubError> {
        let body = json!({"sha": claim.sha, "force": false});
        let path = self.ref_path("refs", claim.issue);
        self.client.patch::<Value>(&path, body).await.map(drop)
    }

    /// The path of a claim's ref. Its name is one part of the path, so its slashes are encoded.
    fn ref_path(&self, kind: &str, issue: u64) -> String {
        let name = query_value(&format!("ralph/claims/{issue}"));
        format!("repos/{}/git/{kind}/{name}", self.repository)
    }

    async fn pause(&self, looks: u32) {
        sleep(self.client.pace().first_pause.saturating_mul(1 << looks.min(4))).await;
    }
}

#[derive(Deserialize)]
struct GitRef {
    #[serde(rename = "ref")]
    name: String,
    object: GitObject,
}

#[derive(Deserialize)]
struct GitObject {
    sha: String,
}

#[derive(Deserialize)]
struct GitCommit {
    sha: String,
    message: String,
    tree: GitObject,
}
