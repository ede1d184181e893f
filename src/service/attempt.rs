//! One attempt at a queued run: from the claim to its result in the queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::assembly::queued_run::QueuedRun;
use crate::assembly::{ActiveRun, AssemblyContext, AssemblyError, AssemblyErrorKind, RalphBuilder};
use crate::event::{Event, EventKind, EventSink};
use crate::runner::RunOutcome;
use crate::state::{Intervention, InterventionRequest, JournalEntry, RunDir, RunOutcomeKind, StateError};
use crate::store::{LeaseState, QueueClaim, QueueRelease, Store, StoreError};
use crate::usage::Usd;

use super::exchange::Exchange;
use super::host_health::HostHealth;
use super::issue_work::{WorkOrder, asked_for};
use super::lease_keeper::LeaseKeeper;
use super::run_index::RunIndex;
use super::supervise::reason_of;

/// The wait after the first failure; each further one doubles it.
const FIRST_BACKOFF: Duration = Duration::from_secs(15);

/// The longest wait is this many times the first one.
const MOST_BACKOFF: u32 = 64;

/// So many failed starts of a run cost it no attempt: its hosts may be to blame.
const UNCOUNTED_STARTS: u32 = 3;

/// Why a run ended that the worker did not find.
const REMOVED: &str = "the run was removed";

/// How long a result is sent again that the queue did not accept, and how often.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_secs(1);

/// An attempt at a claimed run.
pub(super) struct Attempt {
    pub(super) context: AssemblyContext,
    pub(super) store: Store,
    pub(super) index: Arc<RunIndex>,
    pub(super) claim: QueueClaim,
    /// When the claim was sent: the lease counts from here.
    pub(super) sent: Instant,
    pub(super) lease: Duration,
    pub(super) health: Arc<HostHealth>,
}

/// How an attempt ended.
pub(super) enum AttemptEnd {
    /// The run ended.
    Ended(Box<RunOutcome>),
    /// Its journal says that it ended, and the queue did not have that yet.
    Recorded(RunOutcomeKind, String),
    /// It failed. The run can go on.
    Failed(AssemblyError),
    /// It failed before an iteration began, and this host may be to blame. It claims nothing for this long.
    HostFailed(AssemblyError, Duration),
    /// Another process has the run's directory on this host: a worker that is suspended, or `ralph resume`.
    Busy(AssemblyError),
    /// A person removed the run while it was in the queue.
    Removed,
    /// The worker shuts down.
    Shutdown,
    /// Another worker has the run, or a person. Nothing may be written any more.
    Lost,
}

impl Attempt {
    /// Works on the run until it ends, the lease is lost, or an order ends the work. Then writes the result to the queue.
    pub(super) async fn work(
        self,
        builder: Result<RalphBuilder, AssemblyError>,
        mut orders: watch::Receiver<WorkOrder>,
    ) -> (QueueClaim, AttemptEnd) {
        let keeper = LeaseKeeper::start(
            self.store.clone(),
            self.context.surroundings.clone(),
            self.claim.clone(),
            self.lease,
            self.sent,
        );
        let (sender, iterations) = watch::channel(IterationCount::default());
        let sink = IterationSink {
            count: sender,
            health: self.health.clone(),
        };
        let builder = builder.map(|builder| builder.sink(sink));
        let end = Box::pin(self.drive(builder, &keeper, iterations.clone(), &mut orders)).await;
        // A renewal after the result would find no lease.
        drop(keeper);
        let end = match end {
            AttemptEnd::Failed(error) if iterations.borrow().begun == 0 => self.blame(error),
            end => end,
        };
        let end = match self.settle(&end).await {
            Ok(LeaseState::Held) => end,
            Ok(LeaseState::Lost) => AttemptEnd::Lost,
            Err(error) => {
                // The lease ends by itself, and the next worker finds the run as it is.
                AttemptEnd::Failed(AssemblyError::from(error))
            }
        };
        if !matches!(end, AttemptEnd::Lost) {
            self.index.refresh_if_possible(&self.claim.run).await;
        }
        (self.claim, end)
    }

    /// What a failure before the first iteration is put down to.
    fn blame(&self, error: AssemblyError) -> AttemptEnd {
        match error.kind() {
            AssemblyErrorKind::Conflict => return AttemptEnd::Busy(error),
            AssemblyErrorKind::NotFound if self.is_removed() => return AttemptEnd::Removed,
            _ => {}
        }
        match self.health.failed_start() {
            None => AttemptEnd::Failed(error),
            Some(pause) => AttemptEnd::HostFailed(error, pause),
        }
    }

    /// Whether the run has no directory any more. On a shared store it may be on another host.
    fn is_removed(&self) -> bool {
        let runs = self.context.surroundings.runs();
        let is_gone = |error: &StateError| matches!(error, StateError::NoSuchRun { .. });
        !self.store.is_shared()
            && runs.is_ok_and(|runs| runs.open(&self.claim.run).is_err_and(|error| is_gone(&error)))
    }

    async fn drive(
        &self,
        builder: Result<RalphBuilder, AssemblyError>,
        keeper: &LeaseKeeper,
        iterations: watch::Receiver<IterationCount>,
        orders: &mut watch::Receiver<WorkOrder>,
    ) -> AttemptEnd {
        let start = Box::pin(async { self.start(builder?).await });
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
            never = self.index.follow_run(&self.claim.run) => match never {},
        };
        if let Err(error) = self.leave_sandbox(&run, &end).await {
            let id = &self.claim.run;
            let reporter = &self.context.reporter;
            reporter.warn(&format!(
                "run {id}: the sandbox could not be stopped or removed: {error}"
            ));
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

    /// Stops the sandbox for the next attempt. On a shared store that attempt may be on another host, and nothing would ever use or
    /// remove the sandbox, so it is removed: what the run needs is in its repository.
    async fn leave_sandbox(&self, run: &ActiveRun, end: &AttemptEnd) -> Result<(), AssemblyError> {
        match end {
            // It has removed its sandbox itself.
            AttemptEnd::Ended(outcome) if outcome.kind == RunOutcomeKind::Done => Ok(()),
            AttemptEnd::Lost => run.remove_sandbox().await,
            _ if self.store.is_shared() => run.remove_sandbox().await,
            // It has stopped its sandbox itself.
            AttemptEnd::Ended(_) => Ok(()),
            _ => run.stop_sandbox().await,
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

    /// Starts the run. `None` if it has ended: a person who queues it again gets a first attempt. One that is done is started all the
    /// same, which works on nothing and makes up for what its end still had to do: its sandbox, its reserved branch, its last event.
    async fn start(&self, builder: RalphBuilder) -> Result<Option<ActiveRun>, AssemblyError> {
        let queued: QueuedRun = serde_json::from_str(&self.claim.request)
            .map_err(|error| AssemblyError::usage(format!("the queued request cannot be read: {error}")))?;
        queued.open(&self.context, &self.claim.run).await?;
        let is_over = |end: AttemptEnd| !matches!(end, AttemptEnd::Recorded(RunOutcomeKind::Done, _));
        if self.claim.attempt > 1 && self.recorded_end().is_some_and(is_over) {
            return Ok(None);
        }
        let builder = builder.resume(self.claim.run.clone()).epoch(self.claim.epoch);
        builder.build().await?.start().await.map(Some)
    }

    /// Waits for an order to shut down, and ends the iteration with what it has. Returns when that is recorded, when the next
    /// one begins, or when the order is to end at once. Between two iterations there is nothing to wait for. The run itself
    /// does not end: the next worker resumes it.
    async fn shut_down(
        &self,
        dir: &RunDir,
        mut iterations: watch::Receiver<IterationCount>,
        orders: &mut watch::Receiver<WorkOrder>,
    ) -> Result<(), AssemblyError> {
        asked_for(orders, WorkOrder::Pause).await;
        let current = *iterations.borrow();
        if !current.is_open {
            return Ok(());
        }
        let surroundings = &self.context.surroundings;
        let by = format!("the worker on {}", surroundings.owner().host);
        let request = InterventionRequest::new(Intervention::Rotate, by, surroundings.now());
        dir.inbox().leave(&request)?;
        tokio::select! {
            _ = iterations.wait_for(|count| *count != current) => {}
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
            AttemptEnd::Removed => {
                store
                    .finish(claim, RunOutcomeKind::Stopped, REMOVED, Usd::ZERO)
                    .await
            }
            AttemptEnd::Shutdown => store.release(claim, &QueueRelease::Shutdown).await,
            AttemptEnd::Ended(outcome) => {
                store
                    .finish(claim, outcome.kind, &outcome.reason, outcome.used.cost)
                    .await
            }
            // What it used is known from the renewals.
            AttemptEnd::Recorded(kind, reason) => store.finish(claim, *kind, reason, Usd::ZERO).await,
            AttemptEnd::Failed(error) => self.write_failure(error).await,
            AttemptEnd::HostFailed(error, _) if claim.failed_starts >= UNCOUNTED_STARTS => {
                self.write_failure(error).await
            }
            AttemptEnd::HostFailed(error, pause) => {
                let release = QueueRelease::NotStarted {
                    // Another run is tried first when the pause is over: if that one begins, the host works again.
                    retry_after: 2 * backoff(claim.failed_starts + 1).max(*pause),
                    reason: reason_of(error),
                };
                store.release(claim, &release).await
            }
            AttemptEnd::Busy(error) => {
                let release = QueueRelease::Busy {
                    retry_after: self.lease,
                    reason: reason_of(error),
                };
                store.release(claim, &release).await
            }
        }
    }

    async fn write_failure(&self, error: &AssemblyError) -> Result<LeaseState, StoreError> {
        let (store, claim) = (&self.store, &self.claim);
        let reason = reason_of(error);
        let is_last = claim.attempt >= claim.max_attempts;
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
        let release = QueueRelease::Failed {
            retry_after: backoff(claim.attempt),
            reason,
        };
        store.release(claim, &release).await
    }
}

/// The wait after so many failures in a row.
pub(super) fn backoff(failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    FIRST_BACKOFF * factor.min(MOST_BACKOFF)
}

/// The iterations that began in this attempt, and whether the last of them is still open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct IterationCount {
    begun: u32,
    is_open: bool,
}

/// Counts iterations.
struct IterationSink {
    count: watch::Sender<IterationCount>,
    health: Arc<HostHealth>,
}

impl EventSink for IterationSink {
    fn emit(&self, event: &Event) {
        match event.kind {
            EventKind::IterationStarted { .. } => {
                self.health.begun();
                self.count.send_modify(|count| {
                    count.begun += 1;
                    count.is_open = true;
                });
            }
            EventKind::IterationEnded { .. } => self.count.send_modify(|count| count.is_open = false),
            _ => {}
        }
    }
}
