//! What agent programs use, counted outside of them, and what calls that were refused mean for a run.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use crate::agent::{Ending, Trouble};
use crate::gateway::meter::{Allowance, Meter, Notice, Spent};
use crate::model::Profile;
use crate::state::Reserved;
use crate::usage::Tokens;

use super::error::Halt;
use super::run::Run;
use super::session::Ended;

/// Counts the calls that agent programs make through the broker.
#[derive(Clone)]
pub struct Metering {
    /// The meter of the run.
    pub meter: Meter,
    /// What it tells: it is the meter's sink.
    pub notices: Arc<Mutex<Vec<Notice>>>,
    /// The profiles whose agents call through it.
    pub profiles: BTreeSet<String>,
}

impl Metering {
    /// What was counted since an earlier reading; no cost where nobody knows the price of a call.
    pub(super) fn since(&self, before: Spent) -> Reserved {
        let now = self.meter.spent();
        Reserved {
            tokens: Tokens {
                input: now.tokens.input.saturating_sub(before.tokens.input),
                output: now.tokens.output.saturating_sub(before.tokens.output),
            },
            cost: (now.unpriced_calls <= before.unpriced_calls).then(|| now.cost.since(before.cost)),
        }
    }

    fn take_notices(&self) -> Vec<Notice> {
        take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Run<'_> {
    /// The meter of a profile's calls.
    pub(super) fn metering(&self, profile: &Profile) -> Option<&Metering> {
        let metering = self.parts.metering.as_ref()?;
        metering.profiles.contains(&profile.name).then_some(metering)
    }

    /// Lets the meter count for this iteration, with what the budget leaves, and returns where it stands.
    ///
    /// A cost can only bound calls whose price is known; of the others the agent tells the cost, and is told what is
    /// left.
    pub(super) fn begin_metering(&self, iteration: u32, profile: &Profile) -> Option<Spent> {
        let metering = self.metering(profile)?;
        let (spent, ledger) = (metering.meter.spent(), self.ledger());
        let tokens = self.settings.budget.max_tokens;
        let left = tokens.map(|limit| limit.saturating_sub(ledger.tokens.total()));
        let cost_left = self.cost_left().filter(|_| profile.price.is_some());
        metering.take_notices();
        metering.meter.begin_iteration(iteration);
        metering.meter.allow(Allowance {
            cost: cost_left.map(|left| spent.cost + left),
            tokens: left.map(|left| spent.tokens.total().saturating_add(left)),
        });
        Some(spent)
    }

    /// How a session ended, with what the meter knows: a program may pass over that its calls were refused.
    pub(super) fn by_the_meter(&self, ended: Ended, profile: &Profile) -> Result<Ended, Halt> {
        let Some(metering) = self.metering(profile) else {
            return Ok(ended);
        };
        match (weigh(metering.take_notices()), ended) {
            (Some(Refused::Unpriced { model }), _) => Err(Halt::paused(format!(
                "the cost of `{model}` is unknown, so max_cost_usd_estimate cannot hold: give the model's price in \
                 [models.NAME] or set max_tokens_total"
            ))),
            (Some(Refused::OverBudget { reason }), Ended::Finished(mut outcome)) => {
                outcome.ending = Ending::OverBudget { reason };
                Ok(Ended::Finished(outcome))
            }
            (Some(Refused::OverBudget { reason }), Ended::Failed(_)) => {
                Err(Halt::failed(format!("budget exceeded: {reason}")))
            }
            (Some(Refused::InTrouble(trouble)), Ended::Finished(_)) => Ok(Ended::Failed(trouble)),
            (Some(Refused::InTrouble(_)) | None, ended) => Ok(ended),
        }
    }
}

/// Why calls of a session were refused.
#[derive(Debug, PartialEq)]
enum Refused {
    OverBudget { reason: String },
    Unpriced { model: String },
    InTrouble(Trouble),
}

/// What the notices of a session come to. A bound that was met is the end; trouble counts when no call came after it
/// that was answered.
fn weigh(notices: Vec<Notice>) -> Option<Refused> {
    let mut refused = None;
    for notice in notices {
        refused = match notice {
            Notice::BudgetExceeded(overdrawn) => {
                return Some(Refused::OverBudget {
                    reason: overdrawn.to_string(),
                });
            }
            Notice::Unpriced { model } => return Some(Refused::Unpriced { model }),
            // A call that used nothing was not answered.
            Notice::Spent { tokens, .. } if tokens.total() == 0 => refused,
            Notice::Spent { .. } => None,
            Notice::RateLimited { status, until } => {
                let said = format!("status {status}");
                Some(Refused::InTrouble(Trouble::RateLimited { until, said }))
            }
            Notice::CredentialRefused { reason: said } => {
                Some(Refused::InTrouble(Trouble::Unauthorized { said }))
            }
        };
    }
    refused
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::gateway::meter::{Basis, Overdrawn};

    #[rstest]
    #[case::nothing(vec![], None)]
    #[case::answered(vec![spent(3)], None)]
    #[case::refused(vec![spent(3), spent(0), refused()], Some(trouble()))]
    #[case::a_refused_call_is_freed_after_it(vec![refused(), spent(0)], Some(trouble()))]
    #[case::answered_after_all(vec![refused(), spent(3)], None)]
    #[case::over_budget_whatever_comes_after(vec![overdrawn(), spent(3)], Some(over_budget()))]
    fn what_was_refused_is_weighed(#[case] notices: Vec<Notice>, #[case] expected: Option<Refused>) {
        assert_eq!(weigh(notices), expected);
    }

    fn spent(tokens: u64) -> Notice {
        Notice::Spent {
            model: "m".to_owned(),
            tokens: Tokens {
                input: tokens,
                output: 0,
            },
            cost: None,
            basis: Basis::Reported,
        }
    }

    fn refused() -> Notice {
        Notice::CredentialRefused {
            reason: "no".to_owned(),
        }
    }

    fn trouble() -> Refused {
        Refused::InTrouble(Trouble::Unauthorized {
            said: "no".to_owned(),
        })
    }

    const OVERDRAWN: Overdrawn = Overdrawn::Tokens {
        worst: 3,
        spent: 2,
        limit: 4,
    };

    fn overdrawn() -> Notice {
        Notice::BudgetExceeded(OVERDRAWN)
    }

    fn over_budget() -> Refused {
        Refused::OverBudget {
            reason: OVERDRAWN.to_string(),
        }
    }
}
