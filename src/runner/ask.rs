//! Paid calls: reserved before they are made, settled when they came back, waited for when the model asks for it.

use crate::text::error_chain;
use std::time::Duration;

use crate::agent::{Agent, ModelFailure};
use crate::event::EventKind;
use crate::model::{CallPurpose, ModelError, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::state::{CallUsage, JournalEntry, JournalLine};
use crate::usage::{Tokens, Usd};

use super::budget::{Ledger, since_rest};
use super::error::Halt;
use super::run::Run;

/// The longest single wait when the model does not say until when.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// The shortest wait: clocks differ a little.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Which call of which iteration it is, and what for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) iteration: u32,
    pub(super) number: u32,
    pub(super) purpose: CallPurpose,
}

impl Run<'_> {
    /// Asks a model. Rate limits and outages are waited out; a wait is not an iteration.
    pub(super) async fn ask(
        &mut self,
        profile: &Profile,
        messages: Vec<ModelMessage>,
        call: Call,
    ) -> Result<ModelReply, Halt> {
        let request = ModelRequest {
            profile: profile.clone(),
            messages: self.redacted(messages),
            iteration: call.iteration,
            call: call.number,
            purpose: call.purpose,
        };
        let mut backoff = self.settings.model_wait;
        loop {
            match self.call(&request).await? {
                Ok(reply) => return Ok(self.answered(reply)),
                Err(error) => {
                    let Some(wait) = waiting_time(&error, backoff).filter(|_| self.worth_waiting_for(&error))
                    else {
                        return Err(given_up(error));
                    };
                    self.wait(wait, error_chain(&error)).await?;
                    backoff = (backoff * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// One call: set aside, made, settled.
    async fn call(&mut self, request: &ModelRequest) -> Result<Result<ModelReply, ModelError>, Halt> {
        let reserved = CallUsage {
            tokens: request.worst_case(),
            cost: request.worst_cost(),
        };
        let ledger = self.ledger();
        ledger.check_call(&self.settings.budget, reserved)?;
        let call = ledger.calls + 1;
        self.note(JournalEntry::Calling {
            call,
            iteration: request.iteration,
            reserved,
        })?;
        let reply = self.parts.model.answer(request, &mut |_text| {}).await;
        let spent = spent(&reply, reserved);
        self.note(JournalEntry::Called { call, spent })?;
        if reply.is_ok() && spent.cost.is_none() {
            self.unpriced(&request.profile)?;
        }
        Ok(reply)
    }

    /// A price nobody knows: fine while tokens are bounded, otherwise a person must decide.
    fn unpriced(&self, profile: &Profile) -> Result<(), Halt> {
        let model = &profile.litellm_model;
        if self.settings.budget.max_tokens.is_none() {
            return Err(Halt::paused(format!(
                "the cost of `{model}` is unknown, so max_cost_usd_estimate cannot hold: give its price \
                 in [models.{}] or set max_tokens_total",
                profile.name
            )));
        }
        self.reporter.warn(format!(
            "the cost of `{model}` is unknown; max_tokens_total bounds this run"
        ));
        Ok(())
    }

    fn answered(&self, reply: ModelReply) -> ModelReply {
        self.reporter.emit(EventKind::ModelAnswered {
            model: reply.model.clone(),
            tokens: reply.tokens.map(Tokens::total),
            cost_usd: reply.cost.map(Usd::dollars),
        });
        ModelReply {
            text: self.parts.redactor.redact(&reply.text),
            ..reply
        }
    }

    /// Waits, unless that would be longer than the run may wait. Whoever called watches for a person's requests.
    async fn wait(&mut self, wait: Duration, reason: String) -> Result<(), Halt> {
        let limit = self.settings.budget.max_rate_limit_wait;
        if self.recent().waited + wait > limit {
            return Err(Halt::paused(format!(
                "the model asks for a longer wait than {} minutes in all (max_rate_limit_wait_minutes)",
                limit.as_secs() / 60
            )));
        }
        let until = self.parts.clock.now() + wait;
        self.reporter.emit(EventKind::Waiting { reason, until });
        let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.waiting
            .fetch_add(milliseconds, std::sync::atomic::Ordering::Relaxed);
        // The lease is renewed, so that no other machine takes the run over meanwhile.
        self.lease_until = Some(until);
        self.checkpoint(None).await?;
        tokio::time::sleep(wait).await;
        self.note(JournalEntry::Waited { milliseconds })?;
        Ok(())
    }

    /// What was spent since the run last rested.
    fn recent(&self) -> Ledger {
        Ledger::from_journal(since_rest(self.journal.lines()), self.parts.clock.now())
    }

    /// Refuses to go on after calls that nobody knows the price of, cut-off ones too, while only a cost bounds the run.
    pub(super) fn check_prices(&self) -> Result<(), Halt> {
        let budget = &self.settings.budget;
        if budget.max_cost.is_none() || budget.max_tokens.is_some() || self.recent().unpriced_calls == 0 {
            return Ok(());
        }
        Err(Halt::paused(
            "a call was made whose cost is unknown, so max_cost_usd_estimate cannot hold: give the model's price in \
             [models.NAME] or set max_tokens_total",
        ))
    }

    /// An endpoint that never answered in this run is more likely misconfigured than down for a while.
    fn worth_waiting_for(&self, error: &ModelError) -> bool {
        !matches!(error, ModelError::Unavailable { .. }) || self.has_been_answered()
    }

    fn has_been_answered(&self) -> bool {
        let answered = |line: &JournalLine| matches!(line.entry, JournalEntry::Called { spent, .. } if spent.tokens.total() > 0);
        self.journal.lines().iter().any(answered)
    }

    /// Waits out what keeps the model behind an agent program from answering, where waiting helps: then there is another
    /// session. `backoff` is how long where nobody says until when; it grows.
    pub(super) async fn endure(
        &mut self,
        trouble: &ModelFailure,
        agent: &dyn Agent,
        backoff: &mut Duration,
    ) -> Result<(), Halt> {
        let wait = match trouble {
            ModelFailure::RateLimited {
                until: Some(until), ..
            } => {
                let left = until.duration_since(self.parts.clock.now());
                Duration::try_from(left).unwrap_or_default().max(SHORTEST_WAIT)
            }
            ModelFailure::RateLimited { until: None, .. } => *backoff,
            ModelFailure::Unavailable { .. } if self.has_been_answered() => *backoff,
            ModelFailure::Unauthorized { .. } => {
                let remedy = agent.credential_hint().unwrap_or("give it another one");
                return Err(Halt::paused(format!("{}: {trouble} ({remedy})", agent.name())));
            }
            ModelFailure::Unavailable { .. } | ModelFailure::NoSuchModel { .. } => {
                return Err(Halt::paused(format!("{}: {trouble}", agent.name())));
            }
        };
        *backoff = (*backoff * 2).min(LONGEST_WAIT);
        self.wait(wait, trouble.to_string()).await
    }

    fn redacted(&self, messages: Vec<ModelMessage>) -> Vec<ModelMessage> {
        let redact = |message: ModelMessage| ModelMessage {
            content: self.parts.redactor.redact(&message.content),
            ..message
        };
        messages.into_iter().map(redact).collect()
    }
}

/// What a call cost. Missing usage costs what was set aside, and so does each attempt that broke off on the way.
fn spent(reply: &Result<ModelReply, ModelError>, reserved: CallUsage) -> CallUsage {
    let (own, broken_off) = match reply {
        Ok(ModelReply {
            tokens: Some(tokens),
            cost,
            unmetered_attempts,
            ..
        }) => (
            CallUsage {
                tokens: *tokens,
                cost: *cost,
            },
            *unmetered_attempts,
        ),
        Ok(ModelReply {
            tokens: None,
            cost,
            unmetered_attempts,
            ..
        }) => (
            CallUsage {
                tokens: reserved.tokens,
                cost: cost.or(reserved.cost),
            },
            *unmetered_attempts,
        ),
        Err(ModelError::Unavailable {
            unmetered_attempts, ..
        }) => (NOTHING, *unmetered_attempts),
        Err(_) => (NOTHING, 0),
    };
    (0..broken_off).fold(own, |sum, _| CallUsage {
        tokens: sum.tokens + reserved.tokens,
        cost: sum.cost.zip(reserved.cost).map(|(a, b)| a + b),
    })
}

/// A call that was refused before any work was done: nothing is charged for that.
const NOTHING: CallUsage = CallUsage {
    tokens: Tokens { input: 0, output: 0 },
    cost: Some(Usd::ZERO),
};

/// How long to wait before asking again; `None` when asking again is no use.
fn waiting_time(error: &ModelError, backoff: Duration) -> Option<Duration> {
    match error {
        ModelError::RateLimited { retry_after, .. } => Some(retry_after.unwrap_or(backoff)),
        ModelError::Unavailable { .. } => Some(backoff),
        ModelError::Unauthorized { .. } | ModelError::Refused { .. } | ModelError::ScriptExhausted { .. } => {
            None
        }
    }
}

fn given_up(error: ModelError) -> Halt {
    match error {
        error @ ModelError::ScriptExhausted { .. } => Halt::from(error),
        error => Halt::paused(format!("{} ({})", error_chain(&error), error.hint())),
    }
}
