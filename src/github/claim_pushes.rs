//! Pushes of claims. Those that wait at the same time share one push: a process with 50 runs renews 50 claims, and GitHub asks
//! for a few pushes to a repository in a minute.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::error::GitHubError;
use super::forge::GitHubForge;
use super::retry::RemoteRetry;
use crate::id::ObjectId;
use crate::scm::{RefMove, ScmError, ScratchRepository};

/// The pushes of one process.
pub(super) struct ClaimPushes {
    forge: Arc<GitHubForge>,
    waiting: Mutex<Vec<WaitingMove>>,
}

/// A change of the ref of a claim.
#[derive(Clone, Debug)]
pub(super) struct ClaimMove {
    /// The full name of the ref.
    pub(super) name: String,
    /// Where it is now. `None` means that it must not exist.
    pub(super) from: Option<ObjectId>,
    /// The message and the time of the commit where it is afterwards. `None` deletes it.
    pub(super) to: Option<(String, Timestamp)>,
    /// Whether this process does not have the claim yet.
    pub(super) is_new: bool,
}

/// A move that waits for the next push, and the channel for its result.
struct WaitingMove {
    change: ClaimMove,
    done: oneshot::Sender<Result<Option<ObjectId>, ScmError>>,
}

impl ClaimPushes {
    pub(super) fn new(forge: Arc<GitHubForge>) -> Self {
        Self {
            forge,
            waiting: Mutex::default(),
        }
    }

    /// Moves the ref of a claim. Returns the commit where it is then.
    pub(super) async fn push(&self, change: &ClaimMove) -> Result<Option<ObjectId>, GitHubError> {
        loop {
            let (done, mut result) = oneshot::channel();
            let (change, is_new) = (change.clone(), change.is_new);
            self.waiting().push(WaitingMove { change, done });
            tokio::select! {
                biased;
                pushed = &mut result => if let Ok(pushed) = pushed {
                    return Ok(pushed?);
                },
                turn = self.forge.client.begin_claim_push(is_new) => {
                    let _one_write_at_a_time = turn?;
                    self.push_waiting().await?;
                    if let Ok(pushed) = result.try_recv() {
                        return Ok(pushed?);
                    }
                }
            }
            // The task that pushed was cancelled before the result, or another move of this ref came first.
        }
    }

    /// Pushes all moves that wait.
    async fn push_waiting(&self) -> Result<(), GitHubError> {
        let scratch = ScratchRepository::create(&self.forge.repository)?;
        let batch = self.take_waiting();
        if batch.is_empty() {
            return Ok(());
        }
        let mut moves = Vec::new();
        for WaitingMove { change, .. } in &batch {
            let to = match &change.to {
                Some((message, at)) => Some(scratch.repository.commit_message(message, *at).await?),
                None => None,
            };
            moves.push(RefMove {
                name: change.name.clone(),
                from: change.from.clone(),
                to,
            });
        }
        let results = self.move_refs(&scratch, &moves).await?;
        for ((waiting, moved), result) in batch.into_iter().zip(moves).zip(results) {
            // The receiver may be gone.
            let _ = waiting.done.send(result.map(|()| moved.to));
        }
        Ok(())
    }

    /// Moves refs, again after a rate limit or with another token.
    async fn move_refs(
        &self,
        scratch: &ScratchRepository,
        moves: &[RefMove],
    ) -> Result<Vec<Result<(), ScmError>>, GitHubError> {
        let mut retry = RemoteRetry::new(&self.forge.client);
        loop {
            let remote = self.forge.remote().await?;
            let results = scratch.repository.move_refs(&remote, moves).await?;
            // A refused request has the same result for each ref.
            match results.first() {
                Some(Err(error)) if retry.prepare(&remote, error).await? => {}
                _ => return Ok(results),
            }
        }
    }

    /// Takes the first move of each ref. A push cannot have two of one ref.
    fn take_waiting(&self) -> Vec<WaitingMove> {
        let mut waiting = self.waiting();
        let wanted = std::mem::take(&mut *waiting)
            .into_iter()
            .filter(|one| !one.done.is_closed());
        let mut names = BTreeSet::new();
        let (first, later) = wanted.partition(|one| names.insert(one.change.name.clone()));
        *waiting = later;
        first
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<WaitingMove>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
