//! The branch of an issue's run is pushed together with its claim: git moves both refs or none. So a process that has lost its
//! claim pushes nothing, and the next owner of the claim knows which branch it goes on with.

use serde_json::json;
use tokio::sync::Mutex;

use super::claims::{Claim, ClaimRecord, Claims, PushedBranch, TRIES};
use super::error::GitHubError;
use super::forge::GitHubForge;
use crate::id::RunId;
use crate::scm::{ForgeError, PullRequest, RefMove, Remote, ScmError};

impl Claim {
    /// The request of the claim's run. A branch that an earlier run pushed under this claim, and its pull request, are its own.
    #[must_use]
    pub fn go_on_with(&self, request: &PullRequest) -> PullRequest {
        let mut request = request.clone();
        let pushed = self.record.pushed.as_ref();
        if let Some(pushed) = pushed.filter(|pushed| pushed.name == request.branch) {
            request.ours.push(pushed.commit.clone());
            let earlier = pushed.runs.iter().filter(|run| **run != request.run);
            request.earlier_runs.extend(earlier.cloned());
        }
        request
    }
}

impl Claims {
    /// Pushes the branch of a claim's run, and renews the claim in the same step. Fails with [`GitHubError::ClaimLost`] if
    /// another process has the claim: the branch is left as it is then.
    pub async fn push_branch(
        &self,
        claim: &Mutex<Claim>,
        forge: &GitHubForge,
        request: &PullRequest,
    ) -> Result<(), ForgeError> {
        for _ in 0..=TRIES {
            let push = |remote: Remote| self.push_once(remote, claim, forge, request);
            match forge.at_remote(push).await {
                // Lost, or renewed by a push whose answer was lost.
                Err(ForgeError::Scm(ScmError::RefMoved { name, .. }))
                    if name == claim.lock().await.ref_name() =>
                {
                    self.confirm(&mut *claim.lock().await).await?;
                }
                done => return done,
            }
        }
        let issue = claim.lock().await.issue;
        Err(GitHubError::ClaimContested { issue }.into())
    }

    async fn push_once(
        &self,
        remote: Remote,
        claim: &Mutex<Claim>,
        forge: &GitHubForge,
        request: &PullRequest,
    ) -> Result<(), ForgeError> {
        let Some(branch) = forge.due_push(&remote, request).await? else {
            return Ok(self.record_pushed(&mut *claim.lock().await, request).await?);
        };
        let (_one_write_at_a_time, mut claim) = loop {
            let turn = forge.client.begin_push().await;
            // A renewal locks the claim and waits for its turn.
            match claim.try_lock() {
                Ok(claim) => break (turn, claim),
                Err(_) => drop(turn),
            }
            drop(claim.lock().await);
        };
        let record = self.record_with_push(&claim.record, request);
        let (message, now) = (json!(record).to_string(), forge.client.now());
        let commit = forge.repository.commit_message(&message, now).await?;
        let renewal = RefMove {
            name: claim.ref_name(),
            from: Some(claim.commit.clone()),
            to: Some(commit.clone()),
        };
        // A token of an App may have expired while this waited.
        let remote = forge.remote().await?;
        // If the claim is lost, that is the error. Otherwise it is that of the branch, which git refuses both refs for.
        let moves = [renewal, branch];
        let results = forge.repository.move_refs_together(&remote, &moves).await?;
        let mut errors: Vec<ScmError> = results.into_iter().filter_map(Result::err).collect();
        let is_lost =
            |error: &ScmError| matches!(error, ScmError::RefMoved { name, .. } if *name == claim.ref_name());
        let cause = match errors.iter().position(is_lost) {
            Some(lost) => Some(errors.swap_remove(lost)),
            None => errors.pop(),
        };
        if let Some(error) = cause {
            return Err(error.into());
        }
        (claim.record, claim.commit) = (record, commit);
        Ok(())
    }

    /// Makes sure that a claim is held and says which branch was pushed: an earlier claim of the same run may have done so.
    async fn record_pushed(&self, claim: &mut Claim, request: &PullRequest) -> Result<(), GitHubError> {
        let recorded = claim.record.pushed.as_ref();
        if recorded.is_some_and(|pushed| pushed.name == request.branch && pushed.commit == request.commit) {
            return self.confirm(claim).await;
        }
        self.replace(claim, |before| Some(self.record_with_push(before, request)))
            .await
    }

    fn record_with_push(&self, before: &ClaimRecord, request: &PullRequest) -> ClaimRecord {
        let mut runs: Vec<RunId> = request.earlier_runs.clone();
        runs.push(request.run.clone());
        let pushed = PushedBranch {
            name: request.branch.clone(),
            commit: request.commit.clone(),
            runs,
        };
        self.record(before.epoch, before.run.clone(), Some(pushed))
    }
}
