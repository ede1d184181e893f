//! Claims on issues: which process works on an issue, decided by git refs that are pushed by compare-and-swap.
//!
//! A claim is a ref `refs/ralph/claims/<issue>` to a commit whose message says who has it and until when. Creating the ref
//! wins. Each push names the commit that it replaces or deletes, and GitHub refuses it if the ref is at another one. So a process
//! whose claim was taken over can neither renew nor delete it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::claim_pushes::{ClaimMove, ClaimPushes};
use super::error::GitHubError;
use super::forge::GitHubForge;
use super::retry;
use crate::id::{ObjectId, RunId};
use crate::scm::ScmError;
use crate::text::{error_chain, url_part};

/// The refs of claims, by the numbers of their issues.
const REFS: &str = "refs/ralph/claims/";
/// A claim is taken over this part of a lease after its end at the earliest, for clocks that differ.
const MARGIN: i32 = 15;
/// Claims are renewed after this part of a lease.
const RENEWAL: u32 = 3;
/// How often a push is tried again after lost answers and lost races.
pub(super) const TRIES: u32 = 6;

/// The claims of one process in one repository.
pub struct Claims {
    pub(super) forge: Arc<GitHubForge>,
    pushes: ClaimPushes,
    owner: String,
    lease: SignedDuration,
    started: Instant,
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
    /// The run that works on the issue, or will.
    pub run: Option<RunId>,
    /// The branch that was pushed under this claim, by its owner or an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<PushedBranch>,
}

/// A branch that was pushed under a claim. The next owner of the claim goes on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedBranch {
    /// Its name, without `refs/heads/`.
    pub name: String,
    /// Its commit.
    pub commit: ObjectId,
    /// The runs that pushed it so far.
    pub runs: Vec<RunId>,
}

/// A claim on an issue.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The number of the issue.
    pub issue: u64,
    /// What its newest commit says.
    pub record: ClaimRecord,
    /// What it said before, if this process took it over.
    pub taken_from: Option<ClaimRecord>,
    pub(super) commit: ObjectId,
}

impl Claim {
    /// The commit that its ref is at.
    #[must_use]
    pub fn commit(&self) -> &str {
        self.commit.as_str()
    }

    /// The full name of its ref.
    pub(super) fn ref_name(&self) -> String {
        format!("{REFS}{}", self.issue)
    }
}

/// The result of an attempt to claim an issue.
#[derive(Debug)]
pub enum ClaimAttempt {
    /// This process has the claim.
    Won(Claim),
    /// Another process has it.
    Held(ClaimRecord),
}

/// Why the ref of a claim was not moved.
enum MoveFailure {
    /// It is not at the expected commit, but at this claim, or it does not exist.
    Conflict(Option<Box<Claim>>),
    /// It is unknown whether it was moved. Another attempt finds out.
    Unknown(GitHubError),
    Failed(GitHubError),
}

impl From<GitHubError> for MoveFailure {
    fn from(error: GitHubError) -> Self {
        Self::Failed(error)
    }
}

impl Claims {
    /// Claims for a process that is called `owner`. A claim ends after `lease`, unless it is renewed.
    #[must_use]
    pub fn new(forge: Arc<GitHubForge>, owner: &str, lease: SignedDuration) -> Self {
        Self {
            pushes: ClaimPushes::new(forge.clone()),
            forge,
            // Two processes with the same words would make the same commit, and both would find it theirs.
            owner: format!("{owner} {:016x}", fastrand::u64(..)),
            lease,
            started: Instant::now(),
        }
    }

    /// How long a claim holds after its last renewal.
    #[must_use]
    pub fn lease(&self) -> SignedDuration {
        self.lease
    }

    /// The time until claims are renewed. It is the same moment for all claims of the process, so that they share one push.
    #[must_use]
    pub fn until_renewal(&self) -> Duration {
        let period = (self.lease.unsigned_abs() / RENEWAL).max(Duration::from_millis(1));
        let passed = self.started.elapsed().as_nanos() % period.as_nanos();
        // Nanoseconds since the start fit for 500 years.
        period.saturating_sub(Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// The claims that have ended: the processes that made them are gone. GitHub does not count the calls if nothing has
    /// changed.
    pub async fn ended(&self) -> Result<Vec<Claim>, GitHubError> {
        let (repository, _) = self.forge.info().await?;
        let prefix = url_part("ralph/claims/");
        let path = format!("repos/{repository}/git/matching-refs/{prefix}");
        let refs: Vec<GitRef> = self.forge.client.get_again(&path).await?;
        let mut ended = Vec::new();
        for found in refs {
            let number = found.name.strip_prefix(REFS);
            let Some(issue) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            let claim = match self.read(issue, found.object.sha).await {
                Ok(claim) => claim,
                // A person may have made such a ref, and the API may lack for some seconds what was just pushed.
                Err(error)
                    if error.status() == Some(404) || matches!(error, GitHubError::Response { .. }) =>
                {
                    tracing::warn!(error = %error_chain(&error), name = found.name, "cannot read a claim");
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.has_ended(&claim.record) {
                ended.push(claim);
            }
        }
        Ok(ended)
    }

    fn has_ended(&self, record: &ClaimRecord) -> bool {
        let margin = self.lease / MARGIN;
        self.forge.client.now() > record.until.saturating_add(margin).unwrap_or(Timestamp::MAX)
    }

    /// Claims an issue for a run, or says who has it. A claim that has ended is taken over.
    pub async fn claim(&self, issue: u64, run: Option<RunId>) -> Result<ClaimAttempt, GitHubError> {
        let mut held: Option<Claim> = None;
        for tries in 0..=TRIES {
            let epoch = held
                .as_ref()
                .map_or(1, |held| held.record.epoch.saturating_add(1));
            let pushed = held.as_ref().and_then(|held| held.record.pushed.clone());
            let record = self.record(epoch, run.clone(), pushed);
            let from = held.as_ref().map(|held| &held.commit);
            match self.move_ref(issue, from, Some(record), true).await {
                Ok(Some(won)) => {
                    let taken_from = held.map(|held| held.record);
                    return Ok(ClaimAttempt::Won(Claim { taken_from, ..won }));
                }
                // The owner is random, so a claim of this name was made here, and its answer was lost. One that has ended is
                // taken over like any other: another process may do so too.
                Err(MoveFailure::Conflict(Some(found)))
                    if found.record.owner == self.owner && !self.has_ended(&found.record) =>
                {
                    let taken_from = held.map(|held| held.record);
                    let mut won = Claim { taken_from, ..*found };
                    self.confirm(&mut won).await?;
                    return Ok(ClaimAttempt::Won(won));
                }
                Err(MoveFailure::Conflict(Some(found))) if !self.has_ended(&found.record) => {
                    return Ok(ClaimAttempt::Held(found.record));
                }
                Ok(found) => held = found,
                Err(MoveFailure::Conflict(found)) => held = found.map(|found| *found),
                Err(MoveFailure::Unknown(_)) if tries < TRIES => self.pause(tries).await,
                Err(MoveFailure::Unknown(error) | MoveFailure::Failed(error)) => return Err(error),
            }
        }
        Err(GitHubError::ClaimContested { issue })
    }

    /// Makes sure that this process has a claim, for another half of its lease at least: it is renewed if less is left. Fails
    /// with [`GitHubError::ClaimLost`] if another process has taken it over.
    pub async fn confirm(&self, claim: &mut Claim) -> Result<(), GitHubError> {
        let half = self.forge.client.now().saturating_add(self.lease / 2);
        if half.is_ok_and(|half| claim.record.until > half) && self.is_there(claim).await {
            return Ok(());
        }
        let run = claim.record.run.clone();
        self.renew(claim, run).await
    }

    /// Whether the ref is at this claim. `false` if git cannot say: a renewal finds out.
    async fn is_there(&self, claim: &Claim) -> bool {
        let Ok(remote) = self.forge.remote().await else {
            return false;
        };
        let found = self.forge.repository.remote_ref(&remote, &claim.ref_name()).await;
        found.is_ok_and(|found| found.as_ref() == Some(&claim.commit))
    }

    /// Extends a claim and records its run. Fails with [`GitHubError::ClaimLost`] if another process has taken it over.
    pub async fn renew(&self, claim: &mut Claim, run: Option<RunId>) -> Result<(), GitHubError> {
        let renewed =
            |before: &ClaimRecord| Some(self.record(before.epoch, run.clone(), before.pushed.clone()));
        self.replace(claim, renewed).await
    }

    /// Gives a claim up. One that another process has taken over is left alone.
    pub async fn release(&self, mut claim: Claim) -> Result<(), GitHubError> {
        match self.replace(&mut claim, |_| None).await {
            Err(GitHubError::ClaimLost { .. }) => Ok(()),
            released => released,
        }
    }

    /// Moves the ref from a claim to a new record of the same epoch, or deletes it. What happened is looked up after a lost
    /// answer: nothing is done to a claim of another process.
    pub(super) async fn replace(
        &self,
        claim: &mut Claim,
        new: impl Fn(&ClaimRecord) -> Option<ClaimRecord>,
    ) -> Result<(), GitHubError> {
        for tries in 0..=TRIES {
            let record = new(&claim.record);
            match self
                .move_ref(claim.issue, Some(&claim.commit), record, false)
                .await
            {
                Ok(None) => return Ok(()),
                Ok(Some(moved)) => {
                    (claim.record, claim.commit) = (moved.record, moved.commit);
                    return Ok(());
                }
                // A renewal of this process whose answer was lost.
                Err(MoveFailure::Conflict(Some(found))) if found.record.owner == self.owner => {
                    let found = *found;
                    (claim.record, claim.commit) = (found.record, found.commit);
                }
                Err(MoveFailure::Conflict(found)) => {
                    return Err(GitHubError::ClaimLost {
                        issue: claim.issue,
                        owner: found.map(|found| found.record.owner),
                    });
                }
                Err(MoveFailure::Unknown(_)) if tries < TRIES => self.pause(tries).await,
                Err(MoveFailure::Unknown(error) | MoveFailure::Failed(error)) => return Err(error),
            }
        }
        Err(GitHubError::ClaimContested { issue: claim.issue })
    }

    /// Moves the ref of a claim, if it is at `from`. Returns the claim that it is at then.
    async fn move_ref(
        &self,
        issue: u64,
        from: Option<&ObjectId>,
        record: Option<ClaimRecord>,
        is_new: bool,
    ) -> Result<Option<Claim>, MoveFailure> {
        let message = record.as_ref().map(|record| json!(record).to_string());
        let change = ClaimMove {
            name: format!("{REFS}{issue}"),
            from: from.cloned(),
            to: message.map(|message| (message, self.forge.client.now())),
            is_new,
        };
        let found = match self.pushes.push(&change).await {
            Ok(moved) => {
                return Ok(moved.zip(record).map(|(commit, record)| Claim {
                    issue,
                    record,
                    taken_from: None,
                    commit,
                }));
            }
            Err(GitHubError::Push(ScmError::RefMoved { found, .. })) => found,
            Err(GitHubError::Push(error)) if retry::is_transient(&error) => {
                return Err(MoveFailure::Unknown(error.into()));
            }
            Err(error) => return Err(error.into()),
        };
        let Some(commit) = found else {
            return Err(MoveFailure::Conflict(None));
        };
        match self.read(issue, commit).await {
            Ok(claim) => Err(MoveFailure::Conflict(Some(Box::new(claim)))),
            // The API may lack for some seconds what was just pushed.
            Err(error) if error.status() == Some(404) => Err(MoveFailure::Unknown(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// The claim in this commit.
    async fn read(&self, issue: u64, commit: ObjectId) -> Result<Claim, GitHubError> {
        let (repository, _) = self.forge.info().await?;
        let path = format!("repos/{repository}/git/commits/{commit}");
        let found: GitCommit = self.forge.client.get_again(&path).await?;
        let record = serde_json::from_str(&found.message).map_err(|error| GitHubError::Response {
            call: format!("GET /{path}"),
            source: format!("the ref `{REFS}{issue}` is not a claim of ralph: {error}").into(),
        })?;
        Ok(Claim {
            issue,
            record,
            taken_from: None,
            commit,
        })
    }

    pub(super) fn record(&self, epoch: u64, run: Option<RunId>, pushed: Option<PushedBranch>) -> ClaimRecord {
        let until = self.forge.client.now().saturating_add(self.lease);
        ClaimRecord {
            owner: self.owner.clone(),
            epoch,
            until: until.unwrap_or(Timestamp::MAX),
            run,
            pushed,
        }
    }

    async fn pause(&self, tries: u32) {
        let first = self.forge.client.pace().first_pause;
        sleep(first.saturating_mul(2 << tries.min(3))).await;
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
    sha: ObjectId,
}

#[derive(Deserialize)]
struct GitCommit {
    message: String,
}
