//! What agent programs use, counted outside of them, and what calls that were refused mean for a run.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::agent::{AgentConclusion, AgentOutcome, ModelFailure};
use crate::gateway::meter::{Allowance, Meter, MeterNotice, MeterSink};
use crate::model::Profile;
use crate::state::CallUsage;

use super::error::Halt;
use super::run::Run;
use super::session::Ended;
use super::work::cut_short;

/// Counts the calls that agent programs make through the broker.
#[derive(Clone)]
pub struct AgentMetering {
    /// The meter of the run.
    pub meter: Meter,
    /// What it tells: it is the meter's sink.
    pub notices: Arc<MeterNotices>,
    /// The profiles whose agents call through it.
    pub profiles: BTreeSet<String>,
}

impl AgentMetering {
    /// Allows no call until the next session begins: whatever still runs, or was left behind to be run by somebody else,
    /// would spend what no session answers for.
    pub(super) fn close(&self) {
        self.meter.allow(Allowance::NOTHING);
    }

    /// What a session used; no cost where nobody knows the price of a call. `None` for one that the meter knows nothing
    /// of.
    pub(super) fn used_in(&self, session: u64) -> Option<CallUsage> {
        let spent = self.meter.spent_in(session)?;
        Some(CallUsage {
            tokens: spent.tokens,
            cost: (spent.unpriced_calls == 0).then_some(spent.cost),
        })
    }
}

/// What a meter told and nobody has looked at yet.
#[derive(Debug, Default)]
pub struct MeterNotices {
    told: Mutex<Vec<MeterNotice>>,
    more: Notify,
}

impl MeterNotices {
    /// Waits until a call is refused and every later one would be. Its program may go on trying.
    pub(super) async fn refused_for_good(&self) {
        loop {
            let more = self.more.notified();
            if self.told().iter().any(is_final) {
                return;
            }
            more.await;
        }
    }

    fn take(&self) -> Vec<MeterNotice> {
        take(&mut *self.told())
    }

    fn told(&self) -> MutexGuard<'_, Vec<MeterNotice>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterSink for MeterNotices {
    fn notice(&self, notice: MeterNotice) {
        self.told().push(notice);
        self.more.notify_waiters();
    }
}

/// Whether there is no point in another call.
fn is_final(notice: &MeterNotice) -> bool {
    match notice {
        MeterNotice::BudgetExceeded(_) | MeterNotice::Unpriced { .. } => true,
        MeterNotice::Spent { .. }
        | MeterNotice::RateLimited { .. }
        | MeterNotice::CredentialRefused { .. } => false,
    }
}

impl Run<'_> {
    /// What counts the calls of a profile's agent, with what the budget leaves.
    pub(super) fn begin_metering(&self, profile: &Profile) -> Option<AgentMetering> {
        let metering = self.parts.metering.as_ref()?;
        let metering = metering
            .profiles
            .contains(&profile.name)
            .then(|| metering.clone())?;
        let (spent, ledger) = (metering.meter.spent(), self.ledger());
        let tokens = self.settings.budget.max_tokens;
        let left = tokens.map(|limit| limit.saturating_sub(ledger.tokens.total()));
        let cost_left = self.cost_left();
        metering.notices.take();
        metering.meter.allow(Allowance {
            cost: cost_left.map(|left| spent.cost + left),
            tokens: left.map(|left| spent.tokens.total().saturating_add(left)),
        });
        Some(metering)
    }
}

/// Waits until a session cannot go on by what its meter tells; for ever where there is none.
pub(super) async fn refused_for_good(metering: Option<&AgentMetering>) {
    match metering {
        Some(metering) => metering.notices.refused_for_good().await,
        None => std::future::pending().await,
    }
}

/// How a session ended, with what the meter knows: a program may pass over that its calls were refused.
pub(super) fn by_the_meter(ended: Ended, metering: Option<&AgentMetering>) -> Result<Ended, Halt> {
    let Some(metering) = metering else {
        return Ok(ended);
    };
    match (weigh(metering.notices.take()), ended) {
        (Some(Refused::Unpriced { model }), _) => Err(Halt::paused(format!(
            "the cost of `{model}` is unknown, so max_cost_usd_estimate cannot hold: give the model's price in \
             [models.NAME] or set max_tokens_total"
        ))),
        (Some(Refused::OverBudget { reason }), ended) => {
            let outcome = match ended {
                Ended::Finished(outcome) => outcome,
                Ended::Failed(trouble) => cut_short(&trouble.to_string()),
            };
            Ok(Ended::Finished(AgentOutcome {
                conclusion: AgentConclusion::OverBudget { reason },
                ..outcome
            }))
        }
        (Some(Refused::InTrouble(trouble)), Ended::Finished(_)) => Ok(Ended::Failed(trouble)),
        (Some(Refused::InTrouble(_)) | None, ended) => Ok(ended),
    }
}

/// Why calls of a session were refused.
#[derive(Debug, PartialEq)]
enum Refused {
    OverBudget { reason: String },
    Unpriced { model: String },
    InTrouble(ModelFailure),
}

/// What the notices of a session come to. A bound that was met is the end; trouble counts when no call came after it
/// that was answered.
fn weigh(notices: Vec<MeterNotice>) -> Option<Refused> {
    let mut refused = None;
    for notice in notices {
        refused = match notice {
            MeterNotice::BudgetExceeded(overdrawn) => {
                return Some(Refused::OverBudget {
                    reason: overdrawn.to_string(),
                });
            }
            MeterNotice::Unpriced { model } => return Some(Refused::Unpriced { model }),
            // A call that used nothing was not answered.
            MeterNotice::Spent { tokens, .. } if tokens.total() == 0 => refused,
            MeterNotice::Spent { .. } => None,
            MeterNotice::RateLimited { status, until } => {
                let said = format!("status {status}");
                Some(Refused::InTrouble(ModelFailure::RateLimited {
                    until,
                    message: said,
                }))
            }
            MeterNotice::CredentialRefused { reason: said } => {
                Some(Refused::InTrouble(ModelFailure::Unauthorized { message: said }))
            }
        };
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
    #[case::refused(vec![spent(3), spent(0), refused()], Some(trouble()))]
    #[case::a_refused_call_is_freed_after_it(vec![refused(), spent(0)], Some(trouble()))]
    #[case::answered_after_all(vec![refused(), spent(3)], None)]
    #[case::over_budget_whatever_comes_after(vec![overdrawn(), spent(3)], Some(over_budget()))]
    fn what_was_refused_is_weighed(#[case] notices: Vec<MeterNotice>, #[case] expected: Option<Refused>) {
        assert_eq!(weigh(notices), expected);
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

    fn trouble() -> Refused {
        Refused::InTrouble(ModelFailure::Unauthorized {
            message: "no".to_owned(),
        })
    }

    const OVERDRAWN: OverBudget = OverBudget::Tokens {
        worst: 3,
        spent: 2,
        limit: 4,
    };

    fn overdrawn() -> MeterNotice {
        MeterNotice::BudgetExceeded(OVERDRAWN)
    }

    fn over_budget() -> Refused {
        Refused::OverBudget {
            reason: OVERDRAWN.to_string(),
        }
    }
}
