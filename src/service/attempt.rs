//! One attempt at a queued run: from the claim to its result in the queue.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::assembly::queued_run::QueuedRun;
use crate::assembly::{ActiveRun, AssemblyContext, AssemblyError, AssemblyErrorKind, RalphBuilder};
use crate::event::{Event, EventKind, EventSink};
use crate::runner::RunOutcome;
use crate::state::{Intervention, InterventionRequest, JournalEntry, RunDir, RunOutcomeKind};
use crate::store::{LeaseState, QueueClaim, QueueRelease, Store, StoreError};
use crate::usage::Usd;

use super::exchange::Exchange;
use super::issue_work::{WorkOrder, asked_for};
use super::lease_keeper::LeaseKeeper;

/// How long the first attempt that failed is waited with; each further one doubles it.
const FIRST_BACKOFF: Duration = Duration::from_secs(15);

/// The longest wait is this many times the first one.
const MOST_BACKOFF: u32 = 64;

/// How long a result is sent again that the queue did not accept, and how often.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_secs(1);

/// An attempt at a claimed run.
pub(super) struct Attempt {
    pub(super) context: AssemblyContext,
    pub(super) store: Store,
    pub(super) claim: QueueClaim,
    /// When the claim was sent: the lease counts from here.
    pub(super) sent: Instant,
    pub(super) lease: Duration,
}

/// How an attempt ended.
pub(super) enum AttemptEnd {
    /// The run ended.
    Ended(Box<RunOutcome>),
    /// Its journal says that it ended, and the queue did not have that yet.
    Recorded(RunOutcomeKind, String),
    /// It failed. The run can go on.
    Failed(AssemblyError),
    /// The worker shuts down.
    Shutdown,
    /// Another worker has the run, or a person. Nothing may be written any more.
    Lost,
}

impl Attempt {
    /// Works on the run until it ends, the lease is lost, or an order ends the work. Then writes the result to the queue.
    pub(super) async fn work(
        self,
        builder: RalphBuilder,
        mut orders: watch::Receiver<WorkOrder>,
    ) -> (QueueClaim, AttemptEnd) {
        let keeper = LeaseKeeper::start(
            self.store.clone(),
            self.context.surroundings.clone(),
            self.claim.clone(),
            self.lease,
            self.sent,
        );
        let end = Box::pin(self.drive(builder, &keeper, &mut orders)).await;
        // A renewal after the result would find no lease.
        drop(keeper);
        let end = match self.settle(&end).await {
            Ok(LeaseState::Held) => end,
            Ok(LeaseState::Lost) => AttemptEnd::Lost,
            Err(error) => {
                // The lease ends by itself, and the next worker finds the run as it is.
                AttemptEnd::Failed(AssemblyError::from(error))
            }
        };
        (self.claim, end)
    }

    async fn drive(
        &self,
        builder: RalphBuilder,
        keeper: &LeaseKeeper,
        orders: &mut watch::Receiver<WorkOrder>,
    ) -> AttemptEnd {
        let (steps, iterations) = watch::channel(());
        let start = Box::pin(self.start(builder.sink(IterationSink(steps))));
        let run = tokio::select! {
            run = start => run,
            () = keeper.lost() => return AttemptEnd::Lost,
            () = asked_for(orders, WorkOrder::Pause) => return AttemptEnd::Shutdown,
        };
        let run = match run {
            Ok(Some(run)) => run,
            Ok(None) => return self.recorded_end().unwrap_or(AttemptEnd::Shutdown),
            Err(error) => return AttemptEnd::Failed(error),
        };
        let host = self.context.surroundings.owner().host;
        let mut exchange = Exchange::new(&self.store, &self.claim, run.dir(), &host);
        let end = tokio::select! {
            ended = run.drive() => {
                ended.map_or_else(AttemptEnd::Failed, |outcome| AttemptEnd::Ended(Box::new(outcome)))
            }
            () = keeper.lost() => AttemptEnd::Lost,
            ended = self.shut_down(run.dir(), iterations, orders) => {
                ended.map_or_else(AttemptEnd::Failed, |()| AttemptEnd::Shutdown)
            }
            never = exchange.run(), if self.store.is_shared() => match never {},
        };
        // A run that ended has stopped its sandbox itself.
        if !matches!(end, AttemptEnd::Ended(_))
            && let Err(error) = run.stop_sandbox().await
        {
            let id = &self.claim.run;
            let reporter = &self.context.reporter;
            reporter.warn(&format!("run {id}: the sandbox could not be stopped: {error}"));
        }
        if self.store.is_shared() && !matches!(end, AttemptEnd::Lost) {
            exchange.mirror().await;
        }
        match end {
            // It may have ended before it was interrupted.
            AttemptEnd::Failed(_) | AttemptEnd::Shutdown => self.recorded_end().unwrap_or(end),
            end => end,
        }
    }

    /// The end that the journal of the run has. A worker may be killed between that and its result in the queue.
    fn recorded_end(&self) -> Option<AttemptEnd> {
        let runs = self.context.surroundings.runs().ok()?;
        let mut lines = runs.open(&self.claim.run).ok()?.journal().ok()?;
        match lines.pop()?.entry {
            JournalEntry::Ended { outcome, reason } => Some(AttemptEnd::Recorded(outcome, reason)),
            _ => None,
        }
    }

    /// Starts the run. `None` if it has ended: a person who queues it again gets a first attempt.
    async fn start(&self, builder: RalphBuilder) -> Result<Option<ActiveRun>, AssemblyError> {
        let queued: QueuedRun = serde_json::from_str(&self.claim.request)
            .map_err(|error| AssemblyError::usage(format!("the queued request cannot be read: {error}")))?;
        queued.open(&self.context, &self.claim.run).await?;
        if self.claim.attempt > 1 && self.recorded_end().is_some() {
            return Ok(None);
        }
        let builder = builder.resume(self.claim.run.clone()).epoch(self.claim.epoch);
        builder.build().await?.start().await.map(Some)
    }

    /// Waits for an order to shut down, and ends the iteration with what it has. Returns when that is recorded, when the next
    /// one begins, or when the order is to end at once. The run itself does not end: the next worker resumes it.
    async fn shut_down(
        &self,
        dir: &RunDir,
        mut iterations: watch::Receiver<()>,
        orders: &mut watch::Receiver<WorkOrder>,
    ) -> Result<(), AssemblyError> {
        asked_for(orders, WorkOrder::Pause).await;
        iterations.mark_unchanged();
        let surroundings = &self.context.surroundings;
        let by = format!("the worker on {}", surroundings.owner().host);
        let request = InterventionRequest::new(Intervention::Rotate, by, surroundings.now());
        dir.inbox().leave(&request)?;
        tokio::select! {
            _ = iterations.changed() => {}
            () = asked_for(orders, WorkOrder::End) => {}
        }
        Ok(())
    }

    /// Writes the result to the queue, again while that fails: repeating it is harmless.
    async fn settle(&self, end: &AttemptEnd) -> Result<LeaseState, StoreError> {
        let give_up = Instant::now() + SETTLE_TIMEOUT;
        loop {
            match self.write_result(end).await {
                Err(_) if Instant::now() < give_up => sleep(SETTLE_PAUSE).await,
                written => return written,
            }
        }
    }

    async fn write_result(&self, end: &AttemptEnd) -> Result<LeaseState, StoreError> {
        let (store, claim) = (&self.store, &self.claim);
        match end {
            AttemptEnd::Lost => Ok(LeaseState::Lost),
            AttemptEnd::Shutdown => store.release(claim, &QueueRelease::Shutdown).await,
            AttemptEnd::Ended(outcome) => {
                store
                    .finish(claim, outcome.kind, &outcome.reason, outcome.used.cost)
                    .await
            }
            // What it used is known from the renewals.
            AttemptEnd::Recorded(kind, reason) => store.finish(claim, *kind, reason, Usd::ZERO).await,
            AttemptEnd::Failed(error) => {
                let reason = reason_of(error);
                let is_last = claim.attempt >= claim.max_attempts;
                // Another process of this host may still end its work on the run.
                let may_pass = matches!(
                    error.kind(),
                    AssemblyErrorKind::Runtime | AssemblyErrorKind::Conflict
                );
                if is_last || !may_pass {
                    let reason = format!("attempt {} of {}: {reason}", claim.attempt, claim.max_attempts);
                    // What it used is known from the renewals.
                    return store
                        .finish(claim, RunOutcomeKind::Paused, &reason, Usd::ZERO)
                        .await;
                }
                let factor = 2_u32.saturating_pow(claim.attempt - 1).min(MOST_BACKOFF);
                let retry_after = FIRST_BACKOFF * factor;
                store
                    .release(claim, &QueueRelease::Failed { retry_after, reason })
                    .await
            }
        }
    }
}

/// Why an attempt failed, for people.
pub(super) fn reason_of(error: &AssemblyError) -> String {
    match error.hint() {
        Some(hint) => format!("{error} (hint: {hint})"),
        None => error.to_string(),
    }
}

/// Marks the receiver as changed when an iteration begins or ends.
struct IterationSink(watch::Sender<()>);

impl EventSink for IterationSink {
    fn emit(&self, event: &Event) {
        if let EventKind::IterationStarted { .. } | EventKind::IterationEnded { .. } = event.kind {
            self.0.send_replace(());
        }
    }
}
