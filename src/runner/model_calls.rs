//! Paid model calls: reserved in the journal before they are made, settled when they return, repeated after a wait.

use std::time::{Duration, Instant};

use crate::event::EventKind;
use crate::model::{ModelError, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::state::{CallCharge, JournalEntry};
use crate::text::{counted, error_chain};
use crate::usage::{Tokens, Usd};

use super::accounts::MAX_WAIT;
use super::error::Halt;
use super::progress::RunProgress;

/// A call that was refused before any work was done is free.
const FREE: CallCharge = CallCharge {
    tokens: Tokens { input: 0, output: 0 },
    cost: Some(Usd::ZERO),
};

/// Calls a model. Rate limits and outages are waited out within the same iteration.
pub(super) async fn ask(progress: &mut RunProgress<'_>, request: ModelRequest) -> Result<ModelReply, Halt> {
    let inputs = progress.inputs;
    let redactor = &inputs.parts.redactor;
    let redact = |message: ModelMessage| ModelMessage {
        content: redactor.redact(&message.content),
        ..message
    };
    let request = ModelRequest {
        messages: request.messages.into_iter().map(redact).collect(),
        ..request
    };
    let mut backoff = inputs.settings.model_wait;
    loop {
        let started = Instant::now();
        let error = match call(progress, &request).await? {
            Ok(reply) => {
                inputs.reporter.emit(EventKind::ModelAnswered {
                    model: reply.model.clone(),
                    tokens: reply.tokens.map(Tokens::total),
                    output_tokens: reply.tokens.map(|tokens| tokens.output),
                    cost_usd: reply.cost.map(Usd::dollars),
                    seconds: Some((started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0),
                });
                return Ok(ModelReply {
                    text: redactor.redact(&reply.text),
                    ..reply
                });
            }
            Err(error) => error,
        };
        let may_pass = !matches!(error, ModelError::Unavailable { .. }) || progress.has_answered();
        match retry_after(&error, backoff) {
            Some(wait) if may_pass => progress.wait(wait, error_chain(&error)).await?,
            _ => return Err(give_up(error)),
        }
        backoff = (backoff * 2).min(MAX_WAIT);
    }
}

/// Reserves, makes and settles one call. The outer error ends the run; the inner one may pass.
async fn call(
    progress: &mut RunProgress<'_>,
    request: &ModelRequest,
) -> Result<Result<ModelReply, ModelError>, Halt> {
    let reserved = CallCharge {
        tokens: request.worst_case(),
        cost: request.worst_cost(),
    };
    let ledger = progress.ledger();
    ledger.check_call(&progress.budget, reserved)?;
    let call = ledger.calls + 1;
    progress.append(JournalEntry::Calling {
        call,
        iteration: request.iteration,
        reserved,
    })?;
    let started = Instant::now();
    let reply = progress.inputs.parts.model.answer(request, &mut |_text| {}).await;
    let seconds = started.elapsed().as_secs_f64();
    let spent = spent(&reply, reserved);
    progress.append(JournalEntry::Called { call, spent })?;
    let model = &request.profile.litellm_model;
    progress.log_activity(&match &reply {
        Ok(_) => format!(
            "model {model}: {}, {seconds:.1} s",
            counted(spent.tokens.total(), "token")
        ),
        Err(error) => format!(
            "model {model} failed after {seconds:.1} s: {}",
            error_chain(error)
        ),
    })?;
    progress.warn_about_budget()?;
    if spent.cost.is_none() {
        check_unpriced(progress, &request.profile)?;
    }
    Ok(reply)
}

/// A call of unknown price is fine while a token budget bounds the run; otherwise a person must decide.
fn check_unpriced(progress: &RunProgress<'_>, profile: &Profile) -> Result<(), Halt> {
    let model = &profile.litellm_model;
    if progress.budget.max_tokens.is_none() {
        return Err(Halt::paused(format!(
            "the cost of `{model}` is unknown, so max_cost_usd_estimate cannot be enforced: set its price in \
             [models.{}], or set max_tokens_total",
            profile.name
        )));
    }
    progress.inputs.reporter.warn(format!(
        "the cost of `{model}` is unknown; only max_tokens_total bounds this run"
    ));
    Ok(())
}

/// What a call used. Unreported usage counts as what was reserved, and so does each attempt that broke off.
fn spent(reply: &Result<ModelReply, ModelError>, reserved: CallCharge) -> CallCharge {
    let (own, broken_off) = match reply {
        Ok(reply) => {
            let unreported = reserved.cost.filter(|_| reply.tokens.is_none());
            let own = CallCharge {
                tokens: reply.tokens.unwrap_or(reserved.tokens),
                cost: reply.cost.or(unreported),
            };
            (own, reply.unmetered_attempts)
        }
        Err(error) => (FREE, error.unmetered_attempts()),
    };
    (0..broken_off).fold(own, |sum, _| CallCharge {
        tokens: sum.tokens + reserved.tokens,
        cost: sum.cost.zip(reserved.cost).map(|(a, b)| a + b),
    })
}

/// How long to wait before the next try; `None` when another try cannot succeed.
fn retry_after(error: &ModelError, backoff: Duration) -> Option<Duration> {
    match error {
        ModelError::RateLimited { retry_after, .. } => Some(retry_after.unwrap_or(backoff)),
        ModelError::Unavailable { .. } => Some(backoff),
        ModelError::Unauthorized { .. }
        | ModelError::Refused { .. }
        | ModelError::NotConfigured { .. }
        | ModelError::ScriptExhausted { .. } => None,
    }
}

fn give_up(error: ModelError) -> Halt {
    match error {
        error @ ModelError::ScriptExhausted { .. } => Halt::from(error),
        error => Halt::paused(format!("{} ({})", error_chain(&error), error.hint())),
    }
}
