//! The worker: claims runs from the queue and works on them.
//!
//! A worker keeps nothing between runs, so any scheduler can start and end it. What proves its claim is an epoch, which every
//! write to the queue and to the state ref of the run contains.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::assembly::{AssemblyContext, AssemblyError};
use crate::state::RunOutcomeKind;
use crate::store::{ClaimRequest, Label, QueueClaim, SpendingLimits, Store, StoreError};
use crate::usage::Usd;

use super::attempt::{Attempt, AttemptEnd};
use super::host_health::HostHealth;
use super::issue_work::{WorkOrder, asked_for};
use super::poller::NewBuilder;
use super::run_index::RunIndex;
use super::slots::{RunSlot, RunSlots};
use super::supervise::reason_of;

/// When a worker ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerEnd {
    /// After one run, or if it can claim no run.
    Once,
    /// When there is no run for it.
    Drain,
    /// Never.
    Never,
}

/// How a worker works.
#[derive(Clone, Debug)]
pub(crate) struct WorkerOptions {
    pub(crate) end: WorkerEnd,
    /// What it offers.
    pub(crate) labels: Vec<Label>,
    /// How many runs it works on at the same time.
    pub(crate) slots: RunSlots,
    /// How long a claim lasts without a renewal.
    pub(crate) lease: Duration,
    /// Amounts from which on nothing is claimed.
    pub(crate) limits: SpendingLimits,
}

/// Works on queued runs.
pub(crate) struct Worker {
    context: AssemblyContext,
    store: Store,
    index: Arc<RunIndex>,
    end: WorkerEnd,
    slots: RunSlots,
    request: ClaimRequest,
    builder: NewBuilder,
    running: JoinSet<(RunSlot, (QueueClaim, AttemptEnd))>,
    /// How many runs were claimed.
    claimed: usize,
    /// The limit that was reported last.
    reported_limit: Option<String>,
    /// Whether the last claim failed.
    is_store_down: bool,
    health: Arc<HostHealth>,
    /// Nothing is claimed before this time, because a run could not start here.
    paused_until: Option<Instant>,
    /// Why a run could not start here, for a worker that ends then.
    host_error: Option<AssemblyError>,
}

/// What the last look at the queue found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// As many runs as it may work on at the same time.
    Full,
    /// The one run of a worker that ends after it.
    Enough,
    /// No run, or none any more.
    Nothing,
    /// The store did not answer.
    Failed,
    /// It did not look, because a run could not start here.
    Paused,
}

impl Worker {
    /// A worker for this queue. `builder` makes the builder of each run, and `index` gets their rows.
    pub(crate) fn new(
        context: AssemblyContext,
        store: Store,
        index: Arc<RunIndex>,
        options: WorkerOptions,
        builder: NewBuilder,
    ) -> Self {
        Self {
            request: ClaimRequest {
                worker: context.surroundings.owner().to_string(),
                offers: options.labels,
                lease: options.lease,
                limits: options.limits,
            },
            context,
            store,
            index,
            end: options.end,
            slots: options.slots,
            builder,
            running: JoinSet::new(),
            claimed: 0,
            reported_limit: None,
            is_store_down: false,
            health: Arc::default(),
            paused_until: None,
            host_error: None,
        }
    }

    /// Works until `orders` ask for an end or, by its options, until there is nothing left to do. Returns how many runs it
    /// claimed. That a run could not start on this host is an error where the worker would end by itself: a scheduler starts
    /// it again, on this host or another one.
    pub(crate) async fn work(
        mut self,
        mut orders: watch::Receiver<WorkOrder>,
    ) -> Result<usize, AssemblyError> {
        let mut signal = self.store.listen().await?;
        while *orders.borrow() == WorkOrder::GoOn {
            let pause = self.pause();
            let looked = match pause {
                Some(_) => Looked::Paused,
                None => self.claim_all(&orders).await?,
            };
            let is_through = match self.end {
                WorkerEnd::Once => self.claimed > 0 || looked == Looked::Nothing,
                WorkerEnd::Drain => looked == Looked::Nothing || looked == Looked::Paused,
                WorkerEnd::Never => false,
            };
            if is_through && self.running.is_empty() {
                return self.host_error.map_or(Ok(self.claimed), Err);
            }
            let looks_again = looked == Looked::Nothing || looked == Looked::Failed;
            let next_look = pause.filter(|_| self.end == WorkerEnd::Never);
            tokio::select! {
                () = signal.wait_for_work(), if looks_again => {}
                () = sleep_until(next_look.unwrap_or_else(Instant::now)), if next_look.is_some() => {}
                () = self.slots.wait_until_free(), if looked == Looked::Full => {}
                Some(ended) = self.running.join_next() => self.report(ended),
                () = asked_for(&mut orders, WorkOrder::Pause) => {}
            }
        }
        // The runs have the same orders.
        while let Some(ended) = self.running.join_next().await {
            self.report(ended);
        }
        Ok(self.claimed)
    }

    /// Claims as many runs as it can work on. A store that does not answer is an error only before the first answer: later it
    /// may come back, and the runs go on meanwhile.
    async fn claim_all(&mut self, orders: &watch::Receiver<WorkOrder>) -> Result<Looked, AssemblyError> {
        loop {
            if self.end == WorkerEnd::Once && self.claimed > 0 {
                return Ok(Looked::Enough);
            }
            let Some(slot) = self.slots.take() else {
                return Ok(Looked::Full);
            };
            let sent = Instant::now();
            let claim = match self.store.claim(&self.request).await {
                Ok(claim) => claim,
                Err(error) => return self.store_failed(error),
            };
            self.is_store_down = false;
            let Some(claim) = claim else {
                self.report_limit().await;
                return Ok(Looked::Nothing);
            };
            self.claimed += 1;
            self.begin(claim, sent, slot, orders);
        }
    }

    /// Until when nothing is claimed. A worker that ends by itself claims nothing more.
    fn pause(&self) -> Option<Instant> {
        let is_over = |until: &Instant| self.end == WorkerEnd::Never && *until <= Instant::now();
        self.paused_until.filter(|until| !is_over(until))
    }

    fn store_failed(&mut self, error: StoreError) -> Result<Looked, AssemblyError> {
        let error = AssemblyError::from(error);
        if self.claimed == 0 && self.running.is_empty() && self.end != WorkerEnd::Never {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_store_down, true) {
            let reporter = &self.context.reporter;
            reporter.warn(&format!("{error}; trying again every two seconds"));
        }
        Ok(Looked::Failed)
    }

    fn begin(
        &mut self,
        claim: QueueClaim,
        sent: Instant,
        slot: RunSlot,
        orders: &watch::Receiver<WorkOrder>,
    ) {
        let (run, attempt) = (&claim.run, claim.attempt);
        let reporter = &self.context.reporter;
        reporter.inform(&format!(
            "run {run}: claimed, attempt {attempt} of {}",
            claim.max_attempts
        ));
        let attempt = Attempt {
            context: self.context.clone(),
            store: self.store.clone(),
            index: self.index.clone(),
            claim,
            sent,
            lease: self.request.lease,
            health: self.health.clone(),
        };
        // That there is no builder fails this attempt, and not those that run.
        let (builder, orders) = ((self.builder)(), orders.clone());
        // The slot is free when the end is reported: it decides whether anything more is claimed.
        self.running
            .spawn(async move { (slot, attempt.work(builder, orders).await) });
    }

    /// Reports once that a budget keeps runs in the queue.
    async fn report_limit(&mut self) {
        let limits = &self.request.limits;
        if limits.per_day.is_none() && limits.per_project.is_none() {
            return;
        }
        // A store that does not answer is reported by the next claim.
        let Ok(spent) = self.store.spent_today().await else {
            return;
        };
        let reached = reached_limit(limits, &spent);
        if let Some(limit) = reached.as_ref().filter(|_| self.reported_limit != reached) {
            let reporter = &self.context.reporter;
            reporter.warn(&format!(
                "{limit}: such runs are not claimed before the next day (UTC)"
            ));
        }
        self.reported_limit = reached;
    }

    fn report(&mut self, ended: Result<(RunSlot, (QueueClaim, AttemptEnd)), JoinError>) {
        let reporter = &self.context.reporter;
        let (_slot, (claim, end)) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Its lease ends, and another worker takes it over.
                reporter.warn(&format!("the work on a run broke: {error}"));
                return;
            }
        };
        let run = &claim.run;
        match end {
            AttemptEnd::Ended(outcome) => {
                let result = match (outcome.kind, &outcome.pull_request) {
                    (RunOutcomeKind::Done, Some(location)) => format!("done, {location}"),
                    (kind, _) => format!("{kind}: {}", outcome.reason),
                };
                reporter.inform(&format!("run {run}: {result}"));
            }
            AttemptEnd::Recorded(kind, reason) => reporter.inform(&format!("run {run}: {kind}: {reason}")),
            AttemptEnd::Failed(error) => {
                let (number, most) = (claim.attempt, claim.max_attempts);
                let reason = reason_of(&error);
                reporter.warn(&format!("run {run}: attempt {number} of {most} failed: {reason}"));
            }
            AttemptEnd::HostFailed(error, pause) => {
                let (reason, seconds) = (reason_of(&error), pause.as_secs());
                let next = match self.end {
                    WorkerEnd::Never => format!("claiming nothing for {seconds} s"),
                    WorkerEnd::Once | WorkerEnd::Drain => "claiming nothing more".to_owned(),
                };
                reporter.warn(&format!(
                    "run {run}: it could not start on this host: {reason}; {next}"
                ));
                self.paused_until = Some(Instant::now() + pause);
                self.host_error = Some(error);
            }
            AttemptEnd::Busy(error) => {
                let reason = reason_of(&error);
                reporter.warn(&format!("run {run}: back in the queue: {reason}"));
            }
            AttemptEnd::Removed => reporter.warn(&format!("run {run} was removed, so it leaves the queue")),
            AttemptEnd::Shutdown => reporter.inform(&format!("run {run}: back in the queue")),
            AttemptEnd::Lost => {
                reporter.warn(&format!(
                    "run {run}: the lease is lost, so another worker may have the run; nothing more was written"
                ));
            }
        }
    }
}

/// The budget across runs that is used up, with its setting, for people. `spent` is what the runs of each project used today.
fn reached_limit(limits: &SpendingLimits, spent: &[(String, Usd)]) -> Option<String> {
    let all = spent.iter().fold(Usd::ZERO, |sum, (_, amount)| sum + *amount);
    if let Some(limit) = limits.per_day.filter(|limit| all >= *limit) {
        return Some(format!(
            "the runs of today used {all} of {limit} (`worker.max_cost_usd_per_day`)"
        ));
    }
    let limit = limits.per_project?;
    let (project, amount) = spent.iter().find(|(_, amount)| *amount >= limit)?;
    Some(format!(
        "the runs of `{project}` used {amount} of {limit} today (`worker.max_cost_usd_per_project_per_day`)"
    ))
}
