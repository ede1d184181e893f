//! The meter's view of agent programs: what their calls use, and what refused calls mean for a run.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::agent::{AgentConclusion, AgentOutcome, ModelFailure};
use crate::gateway::meter::{Allowance, Meter, MeterNotice, MeterSink};
use crate::state::CallCharge;

use super::agent_work::interrupted;
use super::error::Halt;
use super::session::SessionEnd;

/// Counts the calls that agent programs make through the broker.
#[derive(Clone)]
pub struct AgentMetering {
    /// The meter of the run.
    pub meter: Meter,
    /// The sink of the meter.
    pub notices: Arc<MeterNotices>,
    /// The profiles whose agents call through it.
    pub profiles: BTreeSet<String>,
}

impl AgentMetering {
    /// Refuses every call until the next session starts. A process that outlives its session must not spend anything.
    pub(super) fn close(&self) {
        self.meter.allow(Allowance::NOTHING);
    }

    /// What a session used, without a cost if the price of any call is unknown. `None` for a session that the meter
    /// does not know.
    pub(super) fn used_in(&self, session: u64) -> Option<CallCharge> {
        let spent = self.meter.spent_in(session)?;
        Some(CallCharge {
            tokens: spent.tokens,
            cost: (spent.unpriced_calls == 0).then_some(spent.cost),
        })
    }
}

/// The notices of a meter that the runner has not read yet.
#[derive(Debug, Default)]
pub struct MeterNotices {
    unread: Mutex<Vec<MeterNotice>>,
    added: Notify,
}

impl MeterNotices {
    /// Reads all notices.
    pub(super) fn take(&self) -> Vec<MeterNotice> {
        take(&mut *self.unread())
    }

    fn unread(&self) -> MutexGuard<'_, Vec<MeterNotice>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterSink for MeterNotices {
    fn notice(&self, notice: MeterNotice) {
        self.unread().push(notice);
        self.added.notify_waiters();
    }
}

/// Whether every further call would be refused too.
fn is_final(notice: &MeterNotice) -> bool {
    match notice {
        MeterNotice::BudgetExceeded(_) | MeterNotice::Unpriced { .. } => true,
        MeterNotice::Spent { .. }
        | MeterNotice::RateLimited { .. }
        | MeterNotice::CredentialRefused { .. } => false,
    }
}

/// Waits until a call is refused and every later one would be, whatever the program does; for ever without a meter.
pub(super) async fn refused_for_good(metering: Option<&AgentMetering>) {
    let Some(AgentMetering { notices, .. }) = metering else {
        return std::future::pending().await;
    };
    loop {
        let added = notices.added.notified();
        if notices.unread().iter().any(is_final) {
            return;
        }
        added.await;
    }
}

/// Corrects the end of a session by what the meter knows: a program may ignore that its calls were refused.
pub(super) fn with_notices(end: SessionEnd, metering: Option<&AgentMetering>) -> Result<SessionEnd, Halt> {
    let Some(metering) = metering else {
        return Ok(end);
    };
    let failure = match refusal(metering.notices.take()) {
        None | Some(MeterNotice::Spent { .. }) => return Ok(end),
        Some(MeterNotice::Unpriced { model }) => {
            return Err(Halt::paused(format!(
                "the cost of `{model}` is unknown, so max_cost_usd_estimate cannot be enforced: set the price of the \
                 model in [models.NAME], or set max_tokens_total"
            )));
        }
        Some(MeterNotice::BudgetExceeded(overdrawn)) => {
            let outcome = match end {
                SessionEnd::Finished(outcome) => outcome,
                SessionEnd::Failed(failure) => interrupted(&failure.to_string()),
            };
            let reason = overdrawn.to_string();
            return Ok(SessionEnd::Finished(AgentOutcome {
                conclusion: AgentConclusion::OverBudget { reason },
                ..outcome
            }));
        }
        Some(MeterNotice::RateLimited { status, until }) => ModelFailure::RateLimited {
            until,
            message: format!("status {status}"),
        },
        Some(MeterNotice::CredentialRefused { reason: message }) => ModelFailure::Unauthorized { message },
    };
    Ok(match end {
        SessionEnd::Finished(_) => SessionEnd::Failed(failure),
        failed @ SessionEnd::Failed(_) => failed,
    })
}

/// Why calls of a session were refused for good. A model failure counts only if no later call was answered.
fn refusal(notices: Vec<MeterNotice>) -> Option<MeterNotice> {
    let mut refused = None;
    for notice in notices {
        match notice {
            // A call that used nothing was not answered.
            MeterNotice::Spent { tokens, .. } if tokens.total() == 0 => {}
            MeterNotice::Spent { .. } => refused = None,
            notice if is_final(&notice) => return Some(notice),
            notice => refused = Some(notice),
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::gateway::meter::{CostBasis, OverBudget};
    use crate::usage::Tokens;

    #[rstest]
    #[case::nothing(vec![], None)]
    #[case::answered(vec![spent(3)], None)]
    #[case::refused(vec![spent(3), spent(0), refused()], Some(refused()))]
    #[case::refused_and_then_unused(vec![refused(), spent(0)], Some(refused()))]
    #[case::answered_after_all(vec![refused(), spent(3)], None)]
    #[case::over_budget_whatever_comes_after(vec![overdrawn(), spent(3)], Some(overdrawn()))]
    fn the_last_unanswered_refusal_counts(
        #[case] notices: Vec<MeterNotice>,
        #[case] expected: Option<MeterNotice>,
    ) {
        assert_eq!(refusal(notices), expected);
    }

    fn spent(tokens: u64) -> MeterNotice {
        MeterNotice::Spent {
            model: "m".to_owned(),
            tokens: Tokens {
                input: tokens,
                output: 0,
            },
            cost: None,
            basis: CostBasis::Reported,
        }
    }

    fn refused() -> MeterNotice {
        MeterNotice::CredentialRefused {
            reason: "no".to_owned(),
        }
    }

    fn overdrawn() -> MeterNotice {
        MeterNotice::BudgetExceeded(OverBudget::Tokens {
            worst: 3,
            spent: 2,
            limit: 4,
        })
    }
}
