//! Renews the lease of a claimed run for as long as a worker drives it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::assembly::Surroundings;
use crate::runner::Ledger;
use crate::store::{LeaseState, QueueClaim, Store};
use crate::text::error_chain;
use crate::usage::Usd;

/// How long to wait after a renewal that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Renews a lease in a task of its own, which no work on the run holds up, until it is dropped or the lease is lost.
pub(super) struct LeaseKeeper {
    lost: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl LeaseKeeper {
    /// Keeps the lease of a claim that was sent at `sent`.
    pub(super) fn start(
        store: Store,
        surroundings: Surroundings,
        claim: QueueClaim,
        lease: Duration,
        sent: Instant,
    ) -> Self {
        let (sender, lost) = watch::channel(false);
        let task = tokio::spawn(async move {
            keep(&store, &surroundings, &claim, lease, sent).await;
            sender.send_replace(true);
        });
        Self { lost, task }
    }

    /// Waits until the lease is lost.
    pub(super) async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            // The task panicked: nothing renews the lease any more, so it will be lost.
            tracing::error!("the task that renews a lease has ended");
        }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews at each third of the lease. Returns when the lease is lost: the queue said so, or no renewal succeeded for the time
/// of the lease, counted from when the last successful one was sent. Until then a renewal that failed leaves unknown whether
/// the claim holds, and the work goes on.
async fn keep(
    store: &Store,
    surroundings: &Surroundings,
    claim: &QueueClaim,
    lease: Duration,
    mut sent: Instant,
) {
    let mut next = sent + lease / 3;
    loop {
        let deadline = sent + lease;
        sleep_until(next.min(deadline)).await;
        let now = Instant::now();
        // A process that was suspended wakes up here.
        if now >= deadline {
            return;
        }
        let used = used_so_far(surroundings, claim);
        match timeout_at(deadline, store.renew(claim, lease, used)).await {
            Ok(Ok(LeaseState::Held)) => {
                sent = now;
                next = now + lease / 3;
            }
            Ok(Ok(LeaseState::Lost)) | Err(_) => return,
            Ok(Err(error)) => {
                tracing::warn!(run = %claim.run, error = %error_chain(&error), "cannot renew a lease; trying again");
                next = Instant::now() + RETRY_PAUSE.min(lease / 10);
            }
        }
    }
}

/// What the run used so far. Nothing while it cannot be read: what is missing is counted at the next renewal.
fn used_so_far(surroundings: &Surroundings, claim: &QueueClaim) -> Usd {
    let read = || {
        let dir = surroundings.runs().ok()?.open(&claim.run).ok()?;
        Some(Ledger::from_journal(&dir.journal().ok()?, Duration::ZERO).cost)
    };
    read().unwrap_or(Usd::ZERO)
}
