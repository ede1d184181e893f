//! The agent's part of an iteration: its sessions are stepped through until one finishes, is cut short, or time is up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::agent::actions::ReportedProgress;
use crate::agent::{AgentBrief, AgentConclusion, AgentOutcome};
use crate::model::Profile;

use super::error::Halt;
use super::gutter;
use super::perform::Performed;
use super::run::Run;
use super::session::AgentAttempt;
use super::watch::{self, Urgent};

/// What an agent did in one iteration.
#[derive(Debug)]
pub(super) struct Work {
    /// How it left the iteration.
    pub(super) outcome: AgentOutcome,
    /// Its last answer or the end of its output.
    pub(super) response: String,
    /// Its actions and what failed.
    pub(super) performed: Performed,
}

/// What cut a session short.
enum Cut {
    Person(Urgent),
    Time,
}

impl Run<'_> {
    /// Lets the agent work, within the iteration's time, as long as no person ends it.
    pub(super) async fn work(&mut self, brief: &AgentBrief, profile: &Profile) -> Result<Work, Halt> {
        let mut attempt = AgentAttempt::new(self.parts.agents.for_profile(&profile.name).session(brief));
        let limit = self
            .settings
            .iteration_timeout
            .min(self.ledger().time_left(&self.settings.budget));
        let (inbox, waiting) = (self.dir.inbox(), self.waiting.clone());
        waiting.store(0, Ordering::Relaxed);
        let ended = tokio::select! {
            outcome = self.sessions(brief, profile, &mut attempt) => outcome.map(Ok),
            urgent = watch::urgent(&inbox) => urgent.map(|urgent| Err(Cut::Person(urgent))).map_err(Halt::from),
            () = time_is_up(limit, &waiting) => Ok(Err(Cut::Time)),
        };
        self.settle_account(&mut attempt, profile)?;
        let ended = ended?;
        self.sandbox.end_processes().await?;
        let AgentAttempt {
            response,
            mut performed,
            ..
        } = attempt;
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(Cut::Person(Urgent::Stop)) => return Err(Halt::stopped("stopped by a person")),
            Err(Cut::Person(Urgent::Rotate)) => cut_short("a person asked for a fresh context"),
            Err(Cut::Time) => {
                let reason = format!(
                    "the iteration took longer than {} s and was ended",
                    limit.as_secs()
                );
                performed
                    .failures
                    .push(gutter::failure_of_text("iteration", 124, "timed out"));
                performed.errors.push(reason.clone());
                cut_short(&reason)
            }
        };
        if let AgentConclusion::Unusable { error } = &outcome.conclusion {
            performed
                .failures
                .push(gutter::failure_of_text("answer", 1, error));
            performed
                .errors
                .push(format!("the answer could not be used: {error}"));
        }
        Ok(Work {
            outcome,
            response,
            performed,
        })
    }
}

/// The outcome of a session that was ended from outside.
pub(super) fn cut_short(reason: &str) -> AgentOutcome {
    AgentOutcome {
        summary: format!("(cut short: {reason})"),
        progress: ReportedProgress::default(),
        conclusion: AgentConclusion::Rotate {
            reason: reason.to_owned(),
        },
    }
}

/// Returns when `limit` has passed, not counting what was spent waiting.
pub(super) async fn time_is_up(limit: Duration, waiting: &Arc<AtomicU64>) {
    let started = Instant::now();
    loop {
        let waited = Duration::from_millis(waiting.load(Ordering::Relaxed));
        let left = (limit + waited).saturating_sub(started.elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}
