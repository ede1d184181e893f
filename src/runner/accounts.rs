//! The accounts of a run: what calls and sessions used, what the budget leaves, and how long to wait for a model.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::agent::{Agent, ModelFailure, ReportedUsage};
use crate::event::EventKind;
use crate::gateway::meter::Allowance;
use crate::model::Profile;
use crate::state::{CallCharge, JournalEntry, JournalLine};
use crate::usage::{Tokens, Usd};

use super::RunInputs;
use super::error::Halt;
use super::metering::AgentMetering;
use super::progress::RunProgress;
use super::report::Reporter;

/// The longest single wait when the model does not say until when.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(600);
/// The shortest wait: clocks differ a little.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// What is reserved for an agent session: its cost is unknown until it is over.
const UNKNOWN: CallCharge = CallCharge {
    tokens: Tokens { input: 0, output: 0 },
    cost: None,
};

/// Keeps a run within its budget. The amounts are in the journal, which is part of the [`RunProgress`].
pub(super) struct Accounts<'a> {
    pub(super) inputs: RunInputs<'a>,
    pub(super) reporter: Reporter,
    /// How long the current iteration waited for models, which does not count against its time limit.
    pub(super) waited: IterationWait,
}

/// The milliseconds an iteration waited. Shared with the timer that ends the iteration.
#[derive(Clone, Debug, Default)]
pub(super) struct IterationWait(Arc<AtomicU64>);

impl IterationWait {
    /// Returns when `limit` has passed since the call, not counting waits.
    pub(super) async fn timeout(&self, limit: Duration) {
        let started = Instant::now();
        loop {
            let waited = Duration::from_millis(self.0.load(Ordering::Relaxed));
            let left = (limit + waited).saturating_sub(started.elapsed());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

impl<'a> Accounts<'a> {
    pub(super) fn new(inputs: RunInputs<'a>, reporter: Reporter) -> Self {
        Self {
            inputs,
            reporter,
            waited: IterationWait::default(),
        }
    }

    /// Whether the budget allows another iteration.
    pub(super) fn check_budget(&self, progress: &RunProgress<'_>) -> Result<(), Halt> {
        let budget = &self.inputs.settings.budget;
        progress.ledger().check(budget)?;
        let only_cost = budget.max_cost.is_some() && budget.max_tokens.is_none();
        if only_cost && progress.recent_ledger().unpriced_calls > 0 {
            return Err(Halt::paused(
                "the cost of an earlier call is unknown, so max_cost_usd_estimate cannot be enforced: set the price \
                 of the model in [models.NAME], or set max_tokens_total",
            ));
        }
        Ok(())
    }

    /// How long the current work may take: one iteration, within the wall time that the budget leaves.
    pub(super) fn time_limit(&self, progress: &RunProgress<'_>) -> Duration {
        let settings = self.inputs.settings;
        let left = progress.ledger().time_left(&settings.budget);
        settings.iteration_timeout.min(left)
    }

    /// Starts the time of an iteration, or of a question to the doctor, and returns its waits.
    pub(super) fn start_timer(&self) -> IterationWait {
        self.waited.0.store(0, Ordering::Relaxed);
        self.waited.clone()
    }

    /// The cost that the budget leaves; `None` without a limit.
    pub(super) fn cost_left(&self, progress: &RunProgress<'_>) -> Option<Usd> {
        let limit = self.inputs.settings.budget.max_cost?;
        Some(limit.saturating_sub(progress.ledger().cost))
    }

    /// Waits, unless that exceeds the total the run may wait. The caller watches for interventions.
    pub(super) async fn wait(
        &self,
        wait: Duration,
        reason: String,
        progress: &mut RunProgress<'_>,
    ) -> Result<(), Halt> {
        let limit = self.inputs.settings.budget.max_rate_limit_wait;
        if progress.recent_ledger().waited + wait > limit {
            return Err(Halt::paused(format!(
                "waiting for the model would exceed {} minutes in total (max_rate_limit_wait_minutes)",
                limit.as_secs() / 60
            )));
        }
        let until = self.inputs.parts.clock.now() + wait;
        self.reporter.emit(EventKind::Waiting { reason, until });
        let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.waited.0.fetch_add(milliseconds, Ordering::Relaxed);
        // Renews the lease, so that no other host takes the run over meanwhile.
        progress.waiting_until = Some(until);
        progress.checkpoint(None).await?;
        tokio::time::sleep(wait).await;
        progress.append(JournalEntry::Waited { milliseconds })?;
        Ok(())
    }

    /// Waits until another session of an agent program may succeed, or pauses the run when waiting does not help.
    /// `backoff` is the wait when the model names no time; it doubles.
    pub(super) async fn wait_out(
        &self,
        failure: &ModelFailure,
        agent: &dyn Agent,
        backoff: &mut Duration,
        progress: &mut RunProgress<'_>,
    ) -> Result<(), Halt> {
        let wait = match failure {
            ModelFailure::RateLimited {
                until: Some(until), ..
            } => {
                let left = until.duration_since(self.inputs.parts.clock.now());
                // A time in the past is a negative duration.
                Duration::try_from(left).unwrap_or(MIN_WAIT).max(MIN_WAIT)
            }
            ModelFailure::RateLimited { until: None, .. } => *backoff,
            ModelFailure::Unavailable { .. } if has_answered(progress.journal.lines()) => *backoff,
            ModelFailure::Unauthorized { .. } => {
                let remedy = agent.credential_hint().unwrap_or("give it another one");
                return Err(Halt::paused(format!("{}: {failure} ({remedy})", agent.name())));
            }
            ModelFailure::Unavailable { .. } | ModelFailure::NoSuchModel { .. } => {
                return Err(Halt::paused(format!("{}: {failure}", agent.name())));
            }
        };
        *backoff = (*backoff * 2).min(MAX_WAIT);
        self.wait(wait, failure.to_string(), progress).await
    }

    /// Lets the meter of a profile's agent admit calls within what the budget leaves. `None` without a meter.
    pub(super) fn begin_metering(
        &self,
        profile: &Profile,
        progress: &RunProgress<'_>,
    ) -> Option<AgentMetering> {
        let metering = self.inputs.parts.metering.as_ref()?;
        if !metering.profiles.contains(&profile.name) {
            return None;
        }
        let (spent, tokens) = (metering.meter.spent(), progress.ledger().tokens.total());
        let limit = self.inputs.settings.budget.max_tokens;
        metering.notices.take();
        metering.meter.allow(Allowance {
            cost: self.cost_left(progress).map(|left| spent.cost + left),
            tokens: limit.map(|limit| {
                let left = limit.saturating_sub(tokens);
                spent.tokens.total().saturating_add(left)
            }),
        });
        Some(metering.clone())
    }

    /// Records that a session starts that calls its model by itself, and returns the number of its call in the journal.
    /// If ralph is killed before the session is settled, only the meter knows what it used.
    pub(super) fn open_session(
        &self,
        iteration: u32,
        metering: Option<&AgentMetering>,
        progress: &mut RunProgress<'_>,
    ) -> Result<u64, Halt> {
        let ledger = progress.ledger();
        ledger.check_call(&self.inputs.settings.budget, UNKNOWN)?;
        let call = ledger.calls + 1;
        if let Some(metering) = metering {
            // Before the journal, so that the meter knows every session that the journal has.
            metering.meter.begin_session(call, iteration)?;
        }
        progress.append(JournalEntry::Calling {
            call,
            iteration,
            reserved: UNKNOWN,
        })?;
        Ok(call)
    }

    /// Records what a session used, however it ended: by the meter where that counts its calls, else as the session
    /// reports it, priced by the profile where that has a price.
    pub(super) fn settle_session(
        &self,
        call: u64,
        reported: &ReportedUsage,
        metering: Option<&AgentMetering>,
        profile: &Profile,
        progress: &mut RunProgress<'_>,
    ) -> Result<(), Halt> {
        let metered = metering.and_then(|metering| {
            metering.close();
            metering.used_in(call)
        });
        let tokens = metered.map(|metered| metered.tokens).or(reported.tokens);
        let spent = CallCharge {
            tokens: tokens.unwrap_or_default(),
            cost: metered
                .and_then(|metered| metered.cost)
                .or_else(|| profile.cost_of(tokens?))
                .or(reported.cost),
        };
        progress.append(JournalEntry::Called { call, spent })?;
        let agent = self.inputs.parts.agents.for_profile(&profile.name);
        self.reporter.emit(EventKind::ModelAnswered {
            model: agent.name().to_owned(),
            tokens: tokens.map(Tokens::total),
            cost_usd: spent.cost.map(Usd::dollars),
        });
        Ok(())
    }

    /// Records what sessions used that a crash cut short, as far as the meter knows it. The rest stays unknown.
    pub(super) fn settle_crashed_sessions(&self, progress: &mut RunProgress<'_>) -> Result<(), Halt> {
        let Some(metering) = &self.inputs.parts.metering else {
            return Ok(());
        };
        metering.close();
        for call in unsettled(progress.journal.lines()) {
            if let Some(spent) = metering.used_in(call) {
                progress.append(JournalEntry::Called { call, spent })?;
            }
        }
        Ok(())
    }
}

/// Whether any model answered in this run. An endpoint that never did is more likely misconfigured than unavailable.
pub(super) fn has_answered(lines: &[JournalLine]) -> bool {
    lines
        .iter()
        .any(|line| matches!(line.entry, JournalEntry::Called { spent, .. } if spent.tokens.total() > 0))
}

/// The calls that started and never ended.
fn unsettled(lines: &[JournalLine]) -> BTreeSet<u64> {
    let mut calls = BTreeSet::new();
    for line in lines {
        match &line.entry {
            JournalEntry::Calling { call, .. } => {
                calls.insert(*call);
            }
            JournalEntry::Called { call, .. } => {
                calls.remove(call);
            }
            _ => {}
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::actions::ActionsAgent;
    use crate::runner::tests::TestRun;
    use crate::state::RunOutcomeKind;

    fn used(tokens: u64, cost: Option<Usd>) -> CallCharge {
        CallCharge {
            tokens: Tokens {
                input: tokens,
                output: 0,
            },
            cost,
        }
    }

    fn called(call: u64, spent: CallCharge) -> JournalEntry {
        JournalEntry::Called { call, spent }
    }

    #[track_caller]
    fn assert_paused(result: Result<(), Halt>, expected: &str) {
        match result {
            Err(Halt::End {
                kind: RunOutcomeKind::Paused,
                reason,
            }) => assert!(reason.contains(expected), "{reason}"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_call_of_unknown_price_pauses_a_run_that_only_a_cost_bounds() {
        let mut run = TestRun::new().await;
        for (max_tokens, paused) in [(None, true), (Some(1000), false)] {
            run.settings.budget.max_tokens = max_tokens;
            let mut progress = run.progress().await;
            let accounts = run.accounts();
            progress.append(called(1, used(5, None))).unwrap();
            match accounts.check_budget(&progress) {
                checked @ Err(_) if paused => assert_paused(checked, "is unknown"),
                checked => assert!(!paused && checked.is_ok()),
            }
        }
    }

    #[tokio::test]
    async fn a_wait_is_recorded_and_bounded() {
        let mut run = TestRun::new().await;
        run.settings.budget.max_rate_limit_wait = Duration::from_millis(60);
        let (mut progress, accounts) = (run.progress().await, run.accounts());
        let wait = Duration::from_millis(40);
        let waited = accounts.wait(wait, "busy".to_owned(), &mut progress).await;
        assert!(waited.is_ok() && progress.is_saved());
        assert_eq!(progress.ledger().waited, wait);
        let refused = accounts.wait(wait, "busy".to_owned(), &mut progress).await;
        assert_paused(refused, "max_rate_limit_wait_minutes");
        let events = run.events();
        assert!(matches!(&events[..], [EventKind::Waiting { .. }]), "{events:?}");
    }

    #[tokio::test]
    async fn a_model_that_never_answered_is_not_waited_for() {
        let run = TestRun::new().await;
        let (mut progress, accounts) = (run.progress().await, run.accounts());
        let mut backoff = Duration::from_millis(1);
        let down = ModelFailure::Unavailable {
            message: "down".to_owned(),
        };
        let refused = accounts
            .wait_out(&down, &ActionsAgent, &mut backoff, &mut progress)
            .await;
        assert_paused(refused, "down");
        progress.append(called(1, used(5, Some(Usd::ZERO)))).unwrap();
        let waited = accounts
            .wait_out(&down, &ActionsAgent, &mut backoff, &mut progress)
            .await;
        assert!(waited.is_ok());
        assert_eq!(backoff, Duration::from_millis(2));
    }

    #[tokio::test]
    async fn a_session_without_a_meter_costs_what_it_reports() {
        let run = TestRun::new().await;
        let (mut progress, accounts) = (run.progress().await, run.accounts());
        let profile = Profile::new("default", "model");
        let cost = Usd::from_dollars(0.5);
        let call = accounts.open_session(1, None, &mut progress).unwrap();
        assert_eq!(progress.ledger().unpriced_calls, 1);
        let reported = ReportedUsage {
            tokens: Some(used(7, None).tokens),
            cost,
        };
        accounts
            .settle_session(call, &reported, None, &profile, &mut progress)
            .unwrap();
        let ledger = progress.ledger();
        assert_eq!((ledger.unpriced_calls, ledger.tokens.total()), (0, 7));
        assert_eq!(Some(ledger.cost), cost);
        assert!(unsettled(progress.journal.lines()).is_empty());
    }

    #[tokio::test]
    async fn the_cost_left_is_never_negative() {
        let run = TestRun::new().await;
        let (mut progress, accounts) = (run.progress().await, run.accounts());
        progress
            .append(called(1, used(1, Usd::from_dollars(99.0))))
            .unwrap();
        assert_eq!(accounts.cost_left(&progress), Some(Usd::ZERO));
    }

    #[tokio::test]
    async fn waits_do_not_count_against_the_time_limit() {
        let wait = IterationWait::default();
        wait.0.store(60, Ordering::Relaxed);
        let started = Instant::now();
        wait.timeout(Duration::from_millis(20)).await;
        assert!(started.elapsed() >= Duration::from_millis(80));
    }
}
