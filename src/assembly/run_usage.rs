//! What a run may use, what it has used, and what it got for it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::runner::{Ledger, checkbox_costs};
use crate::state::{JournalLine, RunDir};

use super::settings::budget;
use super::{AssemblyError, RunControl};

/// What a run may use, what it has used, and what each checkbox cost.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunUsage {
    /// The limits of the run, with what is used of each. Without a limit there is no entry.
    pub budgets: Vec<BudgetUse>,
    /// The cost of each checkbox, in the order of their first ticks.
    pub checkboxes: Vec<CheckboxUsage>,
}

/// A limit, and what is used of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BudgetUse {
    /// The key of the limit, without `budget.`.
    pub name: &'static str,
    /// What is counted: `iterations`, `seconds`, `usd` or `tokens`.
    pub unit: &'static str,
    /// How much is used.
    pub used: f64,
    /// The limit.
    pub limit: f64,
}

/// The part of a checkbox in the cost of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckboxUsage {
    /// Its id; `null` for what was spent after the last tick.
    pub checkbox: Option<String>,
    /// The iteration that ticked it last; 0 for what was spent after the last tick.
    pub iteration: u32,
    /// The cost; `null` if the price of a call in it is unknown.
    pub cost_usd: Option<f64>,
}

impl RunControl {
    /// What a run may use and has used, by its journal and by the configuration that its resume would have.
    pub fn usage(&self, run: &RunDir, lines: &[JournalLine]) -> Result<RunUsage, AssemblyError> {
        let task = run.next_task_by(Some(lines))?;
        let limits = budget(&self.configuration_with(run, Some(&task))?);
        let used = Ledger::from_journal(lines, std::time::Duration::ZERO);
        let entry = |name, unit, used, limit: Option<f64>| {
            limit.map(|limit| BudgetUse {
                name,
                unit,
                used,
                limit,
            })
        };
        let seconds = |duration: std::time::Duration| duration.as_secs_f64();
        let budgets = [
            entry(
                "max_iterations",
                "iterations",
                used.iterations.into(),
                Some(limits.max_iterations.into()),
            ),
            entry(
                "max_wall_time_minutes",
                "seconds",
                seconds(used.worked),
                Some(seconds(limits.max_wall_time)),
            ),
            entry(
                "max_cost_usd_estimate",
                "usd",
                used.cost.dollars(),
                limits.max_cost.map(crate::usage::Usd::dollars),
            ),
            entry(
                "max_tokens_total",
                "tokens",
                approximate(used.tokens.total()),
                limits.max_tokens.map(approximate),
            ),
            entry(
                "max_rate_limit_wait_minutes",
                "seconds",
                seconds(used.waited),
                Some(seconds(limits.max_rate_limit_wait)),
            ),
        ];
        let checkboxes = checkbox_costs(lines).into_iter().map(|part| CheckboxUsage {
            checkbox: part.checkbox,
            iteration: part.iteration,
            cost_usd: part.cost.map(crate::usage::Usd::dollars),
        });
        Ok(RunUsage {
            budgets: budgets.into_iter().flatten().collect(),
            checkboxes: checkboxes.collect(),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 9 * 10^15 tokens")]
fn approximate(count: u64) -> f64 {
    count as f64
}
