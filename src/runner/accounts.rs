//! Keeps a run within its budget: what calls and sessions used, what is left, and how long to wait for a model.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::agent::{Agent, ModelFailure, ReportedUsage};
use crate::event::EventKind;
use crate::gateway::meter::Allowance;
use crate::model::Profile;
use crate::state::{CallCharge, JournalEntry, JournalLine};
use crate::text::counted;
use crate::usage::{Tokens, Usd};

use super::error::Halt;
use super::metering::AgentMetering;
use super::progress::RunProgress;

/// The longest single wait when the model does not say until when.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(600);
/// The shortest wait: clocks differ a little.
const MIN_WAIT: Duration = Duration::from_secs(1);

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

/// Counts the time until it is dropped, because an intervention drops a wait.
struct WaitTimer<'t> {
    started: Instant,
    longest: Duration,
    total: &'t mut Duration,
}

impl Drop for WaitTimer<'_> {
    fn drop(&mut self) {
        *self.total += self.started.elapsed().min(self.longest);
    }
}

impl RunProgress<'_> {
    /// Whether the budget allows another iteration.
    pub(super) fn check_budget(&self) -> Result<(), Halt> {
        let budget = &self.budget;
        self.ledger().check(budget)?;
        let only_cost = budget.max_cost.is_some() && budget.max_tokens.is_none();
        if only_cost && self.recent_ledger().unpriced_calls > 0 {
            return Err(Halt::paused(
                "the cost of an earlier call is unknown, so max_cost_usd_estimate cannot be enforced: set the price \
                 of the model in [models.NAME], or set max_tokens_total",
            ));
        }
        Ok(())
    }

    /// How long the current work may take: one iteration, within the wall time that the budget leaves.
    pub(super) fn time_limit(&self) -> Duration {
        let settings = self.inputs.settings;
        let left = self.ledger().time_left(&self.budget);
        settings.iteration_timeout.min(left)
    }

    /// Starts the time of an iteration, or of a question to the doctor, and returns its waits.
    pub(super) fn start_timer(&self) -> IterationWait {
        self.waited.0.store(0, Ordering::Relaxed);
        self.waited.clone()
    }

    /// The cost that the budget leaves; `None` without a limit.
    pub(super) fn cost_left(&self) -> Option<Usd> {
        let limit = self.budget.max_cost?;
        Some(limit.saturating_sub(self.ledger().cost))
    }

    /// Waits, unless that exceeds the total the run may wait. The caller watches for interventions.
    pub(super) async fn wait(&mut self, wait: Duration, reason: String) -> Result<(), Halt> {
        let limit = self.budget.max_rate_limit_wait;
        if self.recent_ledger().waited + wait > limit {
            return Err(Halt::paused(format!(
                "waiting for the model would exceed {} in total (max_rate_limit_wait_minutes)",
                counted(limit.as_secs() / 60, "minute")
            )));
        }
        let until = self.inputs.parts.clock.now() + wait;
        self.log_activity(&format!("waiting until {until}: {reason}"))?;
        self.inputs.reporter.emit(EventKind::Waiting { reason, until });
        let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.waited.0.fetch_add(milliseconds, Ordering::Relaxed);
        // Renews the lease, so that no other host takes the run over meanwhile.
        self.waiting_until = Some(until);
        self.checkpoint(None).await?;
        let timer = WaitTimer {
            started: Instant::now(),
            longest: wait,
            total: &mut self.unrecorded_wait,
        };
        tokio::time::sleep(wait).await;
        drop(timer);
        self.inputs.reporter.emit(EventKind::StepStarted {
            what: "waiting for the model".to_owned(),
        });
        Ok(self.record_wait()?)
    }

    /// Waits until another session of an agent program may succeed, or pauses the run when waiting does not help.
    /// `backoff` is the wait when the model names no time; it doubles.
    pub(super) async fn wait_out(
        &mut self,
        failure: &ModelFailure,
        agent: &dyn Agent,
        backoff: &mut Duration,
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
            ModelFailure::Unavailable { .. } if self.has_answered() => *backoff,
            ModelFailure::Unauthorized { .. } => {
                let remedy = agent.credential_hint().unwrap_or("give it another one");
                return Err(Halt::paused(format!("{}: {failure} ({remedy})", agent.name())));
            }
            ModelFailure::Unavailable { .. } | ModelFailure::NoSuchModel { .. } => {
                return Err(Halt::paused(format!("{}: {failure}", agent.name())));
            }
        };
        *backoff = (*backoff * 2).min(MAX_WAIT);
        self.wait(wait, failure.to_string()).await
    }

    /// Lets the meter of a profile's agent admit calls within what the budget leaves. `None` without a meter.
    pub(super) fn begin_metering(&self, profile: &Profile) -> Option<AgentMetering> {
        let metering = self.inputs.parts.metering.as_ref()?;
        if !metering.profiles.contains(&profile.name) {
            return None;
        }
        let (spent, tokens) = (metering.meter.spent(), self.ledger().tokens.total());
        let limit = self.budget.max_tokens;
        metering.notices.take();
        metering.meter.allow(Allowance {
            cost: self.cost_left().map(|left| spent.cost + left),
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
        &mut self,
        iteration: u32,
        metering: Option<&AgentMetering>,
    ) -> Result<u64, Halt> {
        // The cost of a session is unknown until it is over.
        let (ledger, reserved) = (self.ledger(), CallCharge::default());
        ledger.check_call(&self.budget, reserved)?;
        let call = ledger.calls + 1;
        if let Some(metering) = metering {
            // Before the journal, so that the meter knows every session that the journal has.
            metering.meter.begin_session(call, iteration)?;
        }
        self.append(JournalEntry::Calling {
            call,
            iteration,
            reserved,
        })?;
        Ok(call)
    }

    /// Records what a session used, however it ended: by the meter where that counts its calls, else as the session
    /// reports it, priced by the profile where that has a price.
    pub(super) fn settle_session(
        &mut self,
        call: u64,
        reported: &ReportedUsage,
        metering: Option<&AgentMetering>,
        profile: &Profile,
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
        self.append(JournalEntry::Called { call, spent })?;
        self.warn_about_budget()?;
        let agent = self.inputs.parts.agents.for_profile(&profile.name);
        self.inputs.reporter.emit(EventKind::ModelAnswered {
            model: agent.name().to_owned(),
            tokens: tokens.map(Tokens::total),
            output_tokens: tokens.map(|tokens| tokens.output),
            cost_usd: spent.cost.map(Usd::dollars),
            seconds: None,
        });
        Ok(())
    }

    /// Records what sessions used that a crash cut short, as far as the meter knows it. The rest stays unknown.
    pub(super) fn settle_crashed_sessions(&mut self) -> Result<(), Halt> {
        let Some(metering) = &self.inputs.parts.metering else {
            return Ok(());
        };
        metering.close();
        for call in unsettled(self.journal.lines()) {
            if let Some(spent) = metering.used_in(call) {
                self.append(JournalEntry::Called { call, spent })?;
            }
        }
        Ok(())
    }

    /// Whether any model answered in this run. An endpoint that never did is more likely misconfigured than unavailable.
    pub(super) fn has_answered(&self) -> bool {
        let mut lines = self.journal.lines().iter();
        lines.any(|line| matches!(line.entry, JournalEntry::Called { spent, .. } if spent.tokens.total() > 0))
    }
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
            progress.append(called(1, used(5, None))).unwrap();
            match progress.check_budget() {
                checked @ Err(_) if paused => assert_paused(checked, "is unknown"),
                checked => assert!(!paused && checked.is_ok()),
            }
        }
    }

    #[tokio::test]
    async fn a_wait_is_recorded_and_bounded() {
        let mut run = TestRun::new().await;
        run.settings.budget.max_rate_limit_wait = Duration::from_millis(60);
        let mut progress = run.progress().await;
        let wait = Duration::from_millis(40);
        let waited = progress.wait(wait, "busy".to_owned()).await;
        assert!(waited.is_ok() && progress.is_saved());
        assert_eq!(progress.ledger().waited, wait);
        let refused = progress.wait(wait, "busy".to_owned()).await;
        assert_paused(refused, "max_rate_limit_wait_minutes");
        let events = run.events();
        let expected = |events: &[EventKind]| {
            matches!(
                events,
                [EventKind::Waiting { .. }, EventKind::StepStarted { what }] if what == "waiting for the model"
            )
        };
        assert!(expected(&events), "{events:?}");
    }

    #[tokio::test]
    async fn a_wait_that_is_cut_short_is_recorded_as_far_as_it_went() {
        let run = TestRun::new().await;
        let mut progress = run.progress().await;
        let saved = format!("refs/ralph/{}/state", run.dir.facts().id);
        // The checkpoint comes before the wait itself.
        let person = async {
            while run.repo.read_ref(&saved).await.unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        tokio::select! {
            ended = progress.wait(Duration::from_secs(600), "busy".to_owned()) => panic!("{ended:?}"),
            () = person => {}
        }
        progress
            .append(JournalEntry::IterationStarted { iteration: 2 })
            .unwrap();
        let waited = progress.ledger().waited;
        let expected = Duration::from_millis(500)..Duration::from_secs(600);
        assert!(expected.contains(&waited), "{waited:?}");
        let entries: Vec<&JournalEntry> = progress.journal.lines().iter().map(|line| &line.entry).collect();
        assert!(
            matches!(
                entries[..],
                [JournalEntry::Waited { .. }, JournalEntry::IterationStarted { .. }]
            ),
            "{entries:?}"
        );
    }

    #[tokio::test]
    async fn a_model_that_never_answered_is_not_waited_for() {
        let run = TestRun::new().await;
        let mut progress = run.progress().await;
        let mut backoff = Duration::from_millis(1);
        let down = ModelFailure::Unavailable {
            message: "down".to_owned(),
        };
        let refused = progress.wait_out(&down, &ActionsAgent, &mut backoff).await;
        assert_paused(refused, "down");
        progress.append(called(1, used(5, Some(Usd::ZERO)))).unwrap();
        let waited = progress.wait_out(&down, &ActionsAgent, &mut backoff).await;
        assert!(waited.is_ok());
        assert_eq!(backoff, Duration::from_millis(2));
    }

    #[tokio::test]
    async fn a_session_without_a_meter_costs_what_it_reports() {
        let run = TestRun::new().await;
        let mut progress = run.progress().await;
        let profile = Profile::new("default", "model");
        let cost = Usd::from_dollars(0.5);
        let call = progress.open_session(1, None).unwrap();
        assert_eq!(progress.ledger().unpriced_calls, 1);
        let reported = ReportedUsage {
            tokens: Some(used(7, None).tokens),
            cost,
        };
        progress.settle_session(call, &reported, None, &profile).unwrap();
        let ledger = progress.ledger();
        assert_eq!((ledger.unpriced_calls, ledger.tokens.total()), (0, 7));
        assert_eq!(Some(ledger.cost), cost);
        assert!(unsettled(progress.journal.lines()).is_empty());
    }

    #[tokio::test]
    async fn the_cost_left_is_never_negative() {
        let run = TestRun::new().await;
        let mut progress = run.progress().await;
        progress
            .append(called(1, used(1, Usd::from_dollars(99.0))))
            .unwrap();
        assert_eq!(progress.cost_left(), Some(Usd::ZERO));
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
