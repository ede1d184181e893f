//! The poller: looks at the issues of a repository again and again, and works on those that are ready.
//!
//! Each tick first compares the issues with the runs that work on them, then starts new ones. What people do on GitHub wins:
//! an issue that was closed, blocked or edited stops, pauses or changes its run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::assembly::issue::{ClaimedIssue, IssueResult};
use crate::assembly::issue_queue::{IssueQueue, numbers};
use crate::assembly::{AssemblyContext, AssemblyError, AssemblyErrorKind, RalphBuilder};
use crate::github::{Issue, IssueStatus, OpenPull};
use crate::state::RunDir;

use super::issue_work::{EndedWork, WorkOrder, asked_for, work_on_issue};
use super::reconcile::{Change, change_of};
use super::slots::{RunSlot, RunSlots};

/// How a poller works.
#[derive(Clone, Debug)]
pub(crate) struct PollSettings {
    /// The time from one tick to the next.
    pub(crate) interval: Duration,
    /// Only issues that this account opened.
    pub(crate) author: Option<String>,
    /// Only issues with this label.
    pub(crate) label: Option<String>,
    /// How many runs work at the same time.
    pub(crate) slots: RunSlots,
    /// Whether it ends when there is no work left.
    pub(crate) once: bool,
}

impl PollSettings {
    fn wants(&self, issue: &Issue) -> bool {
        let by = self.author.as_ref().is_none_or(|author| issue.is_by(author));
        by && self.label.as_ref().is_none_or(|label| issue.has_label(label))
    }
}

/// Makes the builder of each run.
pub(crate) type NewBuilder = Box<dyn Fn() -> Result<RalphBuilder, AssemblyError> + Send + Sync>;

/// Works on the issues of a repository.
pub(crate) struct Poller {
    context: AssemblyContext,
    queue: Arc<IssueQueue>,
    settings: PollSettings,
    builder: NewBuilder,
    active: BTreeMap<u64, ActiveIssue>,
    running: JoinSet<(u64, EndedWork)>,
    /// Issues that must not be worked on as they are.
    refused: BTreeMap<u64, Refusal>,
    /// Issues that wait for others, and for which ones their comment says so.
    waiting: BTreeMap<u64, Vec<u64>>,
    /// Pull requests whose reviews were looked at: when they were changed last.
    reviewed: BTreeMap<u64, Timestamp>,
    /// How many runs ended with an issue that needs a person.
    needs_attention: usize,
}

/// An issue that must not be worked on until it changes, or some time has passed: permissions and claims change without it.
struct Refusal {
    updated_at: Timestamp,
    until: Instant,
}

/// An issue that a run works on.
struct ActiveIssue {
    task: task::Id,
    issue: Arc<ClaimedIssue>,
    orders: watch::Sender<WorkOrder>,
    run: watch::Receiver<Option<RunDir>>,
}

impl Poller {
    /// A poller for a queue. `builder` makes the builder of each run.
    pub(crate) fn new(
        context: AssemblyContext,
        queue: Arc<IssueQueue>,
        settings: PollSettings,
        builder: NewBuilder,
    ) -> Self {
        Self {
            context,
            queue,
            settings,
            builder,
            active: BTreeMap::new(),
            running: JoinSet::new(),
            refused: BTreeMap::new(),
            waiting: BTreeMap::new(),
            reviewed: BTreeMap::new(),
            needs_attention: 0,
        }
    }

    /// Polls until `orders` ask for an end or, with `once`, until no issue is left. Returns how many issues need a person.
    pub(crate) async fn poll(
        mut self,
        mut orders: watch::Receiver<WorkOrder>,
    ) -> Result<usize, AssemblyError> {
        // Errors of the first tick end the command; later ones may pass.
        let mut started = self.tick().await?;
        let mut idle = 0;
        loop {
            // GitHub may list an issue as it was for some seconds, so one look without work is not enough.
            idle = if started == 0 && self.active.is_empty() {
                idle + 1
            } else {
                0
            };
            if self.settings.once && idle > 1 {
                return Ok(self.attention_count());
            }
            let next = Instant::now() + self.settings.interval;
            tokio::select! {
                () = sleep_until(next) => {}
                Some(ended) = self.running.join_next() => self.end(ended),
                () = asked_for(&mut orders, WorkOrder::Pause) => break,
            }
            started = match self.tick().await {
                Ok(started) => started,
                Err(error) if self.settings.once && self.active.is_empty() => return Err(error),
                Err(error) => {
                    // The runs go on: GitHub may answer next time.
                    self.context
                        .reporter
                        .warn(&format!("the issues could not be read: {error}"));
                    1
                }
            };
        }
        self.stop(orders).await;
        Ok(self.attention_count())
    }

    /// How many issues need a person since the start.
    fn attention_count(&self) -> usize {
        self.needs_attention + self.queue.unfit.load(Ordering::Relaxed)
    }

    /// Looks at all issues once. Returns how many runs were started.
    async fn tick(&mut self) -> Result<usize, AssemblyError> {
        while let Some(ended) = self.running.try_join_next() {
            self.end(ended);
        }
        let specifications = self.queue.issues.specifications().await?;
        self.reconcile(&specifications).await;
        for change in self.queue.retarget_stacked().await? {
            let reporter = &self.context.reporter;
            if change.needs_person {
                reporter.warn(&change.text);
            } else {
                reporter.inform(&change.text);
            }
        }
        self.refused
            .retain(|number, _| specifications.iter().any(|issue| issue.number == *number));
        let left = self.left_behind(&specifications).await?;
        let started = self.respond().await?;
        let mut startable = Vec::new();
        for issue in &specifications {
            let Some(status) = claimable(issue, &left).filter(|_| self.settings.wants(issue)) else {
                continue;
            };
            if self.is_refused(issue) || self.active.contains_key(&issue.number) {
                continue;
            }
            match self.is_startable(issue, status, &specifications).await {
                Ok(true) => startable.push((issue, status)),
                Ok(false) => {}
                Err(error) => self.refuse(issue, &error),
            }
        }
        Ok(started + self.start_all(startable).await)
    }

    fn is_refused(&self, issue: &Issue) -> bool {
        let refusal = self.refused.get(&issue.number);
        refusal
            .is_some_and(|refusal| refusal.updated_at == issue.updated_at && Instant::now() < refusal.until)
    }

    /// Leaves an issue alone for a while, unless the failure may pass by the next tick.
    fn refuse(&mut self, issue: &Issue, error: &AssemblyError) {
        let reporter = &self.context.reporter;
        reporter.warn(&format!("issue #{}: {error}", issue.number));
        if error.kind() == AssemblyErrorKind::Usage {
            let refusal = Refusal {
                updated_at: issue.updated_at,
                until: Instant::now() + self.queue.claims.lease().unsigned_abs(),
            };
            self.refused.insert(issue.number, refusal);
        }
    }

    /// The issues in progress whose process is gone. Claims on other issues that have ended are removed.
    async fn left_behind(&self, specifications: &[Issue]) -> Result<Vec<u64>, AssemblyError> {
        let mut left = Vec::new();
        for ended in self.queue.claims.ended().await? {
            let number = ended.issue;
            let listed = specifications.iter().find(|issue| issue.number == number);
            let has = |status| listed.is_some_and(|issue| issue.has_status(status));
            if self.active.contains_key(&number) || has(IssueStatus::Ready) || has(IssueStatus::Blocked) {
                continue;
            }
            if has(IssueStatus::InProgress) {
                left.push(number);
            } else {
                self.queue.claims.release(ended).await?;
            }
        }
        Ok(left)
    }

    /// Whether an issue waits for no other one. The issue shows what it waits for.
    async fn is_startable(
        &mut self,
        issue: &Issue,
        status: IssueStatus,
        listed: &[Issue],
    ) -> Result<bool, AssemblyError> {
        let waits_for = self.queue.waits_for(issue, listed).await?;
        if waits_for.is_empty() {
            return Ok(true);
        }
        self.hold_back(issue, status, waits_for).await?;
        Ok(false)
    }

    /// Claims issues and starts the work on them, until as many runs work as may. Returns how many were started. Claims that
    /// are made at the same time share a push.
    async fn start_all(&mut self, issues: Vec<(&Issue, IssueStatus)>) -> usize {
        let mut left = issues.into_iter();
        let mut claiming = FuturesUnordered::new();
        let mut started = 0;
        loop {
            while left.len() > 0
                && let Some(slot) = self.settings.slots.take()
                && let Some((issue, status)) = left.next()
            {
                let (builder, queue) = ((self.builder)(), self.queue.clone());
                claiming.push(async move {
                    let claimed = match builder {
                        Ok(builder) => queue
                            .claim(issue.number, status)
                            .await
                            .map(|claimed| (claimed, builder, slot)),
                        Err(error) => Err(error),
                    };
                    (issue, claimed)
                });
            }
            let Some((issue, claimed)) = claiming.next().await else {
                return started;
            };
            match claimed {
                Ok((claimed, builder, slot)) => {
                    let number = issue.number;
                    self.waiting.remove(&number);
                    let reporter = &self.context.reporter;
                    reporter.inform(&format!("issue #{number} is claimed: {}", claimed.title()));
                    self.begin(claimed, builder, slot);
                    started += 1;
                }
                Err(error) => self.refuse(issue, &error),
            }
        }
    }

    /// Lets runs of this host go on that are done and whose reviewers ask for something. Returns how many.
    async fn respond(&mut self) -> Result<usize, AssemblyError> {
        let mut started = 0;
        let open = self.queue.reviews.open().await?;
        self.reviewed
            .retain(|number, _| open.iter().any(|pull| pull.number == *number));
        for OpenPull {
            number,
            run,
            updated_at,
        } in open
        {
            let is_known = self.reviewed.get(&number) == Some(&updated_at);
            if is_known {
                continue;
            }
            let Some(slot) = self.settings.slots.take() else {
                continue;
            };
            let builder = (self.builder)()?;
            let claimed = self.queue.claim_reviewed(&run).await;
            // A refusal stays one until something changes; a failure is tried again.
            let is_transient = |error: &AssemblyError| error.kind() != AssemblyErrorKind::Usage;
            if !claimed.as_ref().is_err_and(is_transient) {
                self.reviewed.insert(number, updated_at);
            }
            let reporter = &self.context.reporter;
            match claimed {
                Ok(None) => {}
                Ok(Some(claimed)) => {
                    let number = claimed.number();
                    reporter.inform(&format!("issue #{number}: run {run} goes on with its reviews"));
                    self.begin(claimed, builder, slot);
                    started += 1;
                }
                Err(error) => reporter.warn(&format!("the reviews of run {run}: {error}")),
            }
        }
        Ok(started)
    }

    /// Begins the work on a claimed issue.
    fn begin(&mut self, claimed: Arc<ClaimedIssue>, builder: RalphBuilder, slot: RunSlot) {
        let number = claimed.number();
        let (orders, asked) = watch::channel(WorkOrder::GoOn);
        let (started, run) = watch::channel(None);
        let (surroundings, issue) = (self.context.surroundings.clone(), claimed.clone());
        let handle = self.running.spawn(async move {
            let _slot = slot;
            let work = work_on_issue(&surroundings, issue, builder, asked, started);
            (number, Box::pin(work).await)
        });
        let active = ActiveIssue {
            task: handle.id(),
            issue: claimed,
            orders,
            run,
        };
        self.active.insert(number, active);
    }

    /// Shows on a ready issue that it waits for others.
    async fn hold_back(
        &mut self,
        issue: &Issue,
        status: IssueStatus,
        waits_for: Vec<u64>,
    ) -> Result<(), AssemblyError> {
        let number = issue.number;
        if status == IssueStatus::Blocked && self.waiting.get(&number) == Some(&waits_for) {
            return Ok(());
        }
        if self.queue.hold_back(number, status).await? {
            let others = numbers(&waits_for);
            let reporter = &self.context.reporter;
            reporter.inform(&format!("issue #{number} waits for {others}"));
            self.waiting.insert(number, waits_for);
        }
        Ok(())
    }

    /// Compares each issue with the run that works on it. A failure leaves the run as it is.
    async fn reconcile(&self, specifications: &[Issue]) {
        for (number, active) in &self.active {
            let listed = specifications.iter().find(|issue| issue.number == *number);
            if let Err(error) = self.follow(active, listed).await {
                let reporter = &self.context.reporter;
                reporter.warn(&format!(
                    "issue #{number} could not be compared with its run: {error}"
                ));
            }
        }
    }

    /// Does what a person asked for by changing the issue, and repairs what shows the work on it.
    async fn follow(&self, active: &ActiveIssue, listed: Option<&Issue>) -> Result<(), AssemblyError> {
        let claimed = &active.issue;
        if claimed.is_withdrawn() || active.is_asked() {
            return Ok(());
        }
        let fetched;
        let issue = if let Some(issue) = listed {
            issue
        } else {
            // It is closed, or not a specification any more.
            fetched = self.queue.issues.get(claimed.number()).await?;
            &fetched
        };
        let run = active.run.borrow().clone();
        match (change_of(issue), run) {
            (Some(_), _) => {
                // The list may be some seconds old, and show a label that this process has removed.
                let now = self.queue.issues.get(claimed.number()).await?;
                if let Some(Change { order, result }) = change_of(&now) {
                    active.withdraw(order, result);
                }
            }
            (None, Some(run)) => {
                if claimed.is_edited(issue) && !claimed.is_review {
                    if let Some(reason) = self.queue.apply_edit(&run, issue).await? {
                        active.withdraw(WorkOrder::Pause, IssueResult::NeedsAttention { reason });
                        return Ok(());
                    }
                    claimed.accept_edit(issue);
                }
                claimed.show_work(&run, issue).await?;
            }
            // The run is being prepared.
            (None, None) => {}
        }
        Ok(())
    }

    /// Reports the end of the work on an issue.
    fn end(&mut self, ended: Result<(u64, EndedWork), tokio::task::JoinError>) {
        let reporter = &self.context.reporter;
        let (number, ended) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Its claim ends, and the next process takes it over.
                self.active.retain(|_, active| active.task != error.id());
                reporter.warn(&format!("the work on an issue broke: {error}"));
                return;
            }
        };
        self.active.remove(&number);
        let run = ended
            .run
            .map_or(String::new(), |run| format!(" (run {})", run.facts().id));
        match ended.shown {
            Some(Ok(result)) => {
                if matches!(result, IssueResult::NeedsAttention { .. }) {
                    self.needs_attention += 1;
                }
                reporter.inform(&format!("issue #{number}{run}: {}", result.summary()));
            }
            Some(Err(error)) => {
                reporter.warn(&format!(
                    "issue #{number}{run}: the result could not be shown: {error}"
                ));
            }
            None => {
                let error = ended.outcome.err();
                let error = error.map_or(String::new(), |error| error.to_string());
                reporter.warn(&format!("issue #{number}{run}: {error}"));
            }
        }
    }

    /// Stops all runs, and waits until their issues are ready again.
    async fn stop(&mut self, mut orders: watch::Receiver<WorkOrder>) {
        loop {
            let order = *orders.borrow_and_update();
            self.active.values().for_each(|active| active.ask(order));
            tokio::select! {
                ended = self.running.join_next() => match ended {
                    Some(ended) => self.end(ended),
                    None => return,
                },
                Ok(()) = orders.changed() => {}
            }
        }
    }
}

impl ActiveIssue {
    /// Asks the work to end, unless it was asked for more already.
    fn ask(&self, order: WorkOrder) {
        self.orders.send_if_modified(|asked| {
            let is_more = order > *asked;
            *asked = order.max(*asked);
            is_more
        });
    }

    fn is_asked(&self) -> bool {
        *self.orders.borrow() > WorkOrder::GoOn
    }

    fn withdraw(&self, order: WorkOrder, result: IssueResult) {
        self.issue.withdraw(result);
        self.ask(order);
    }
}

/// The status with which an issue can be claimed, if it can.
fn claimable(issue: &Issue, left_behind: &[u64]) -> Option<IssueStatus> {
    if issue.has_status(IssueStatus::Ready) {
        return Some(IssueStatus::Ready);
    }
    if left_behind.contains(&issue.number) {
        return Some(IssueStatus::InProgress);
    }
    issue
        .has_status(IssueStatus::Blocked)
        .then_some(IssueStatus::Blocked)
}
