//! Warnings when shares of a budget are used: each once, also across a resume.

use crate::event::EventKind;
use crate::state::{JournalEntry, StateError};

use super::budget::{Budget, Ledger};
use super::progress::RunProgress;

/// The shares that are warned about, in percent.
const SHARES: [u32; 3] = [50, 80, 95];

/// How much of one limit is used.
#[derive(Debug, PartialEq)]
struct LimitUse {
    /// The name of the limit in the task.
    budget: &'static str,
    /// The limit and what is used of it, for people.
    used: String,
    limit: String,
    /// From 0 to 1, or above.
    share: f64,
}

impl RunProgress<'_> {
    /// Records each share of a limit that is used now and was not recorded before, and warns about the largest of them. A limit
    /// that was changed since is another limit.
    pub(super) fn warn_about_budget(&mut self) -> Result<(), StateError> {
        for found in limit_uses(&self.ledger(), &self.budget) {
            let LimitUse {
                budget,
                used,
                limit,
                share,
            } = &found;
            let is_used = |percent: &u32| *share >= f64::from(*percent) / 100.0;
            let mut largest = None;
            for percent in SHARES.into_iter().filter(is_used) {
                if self.has_warned(&found, percent) {
                    continue;
                }
                self.append(JournalEntry::BudgetWarned {
                    budget: (*budget).to_owned(),
                    limit: limit.clone(),
                    percent,
                })?;
                largest = Some(percent);
            }
            let Some(percent) = largest else {
                continue;
            };
            self.log_activity(&format!(
                "budget: {percent} % of {budget} is used: {used} of {limit}"
            ))?;
            self.inputs.reporter.emit(EventKind::BudgetWarning {
                budget: (*budget).to_owned(),
                percent,
                used: used.clone(),
                limit: limit.clone(),
            });
        }
        Ok(())
    }

    fn has_warned(&self, found: &LimitUse, share: u32) -> bool {
        self.journal.lines().iter().any(|line| {
            matches!(&line.entry, JournalEntry::BudgetWarned { budget, limit, percent }
                if budget == found.budget && *limit == found.limit && *percent == share)
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more precision")]
fn limit_uses(ledger: &Ledger, budget: &Budget) -> Vec<LimitUse> {
    let minutes = |time: std::time::Duration| format!("{:.1} minutes", time.as_secs_f64() / 60.0);
    let mut uses = vec![
        LimitUse {
            budget: "max_iterations",
            used: ledger.iterations.to_string(),
            limit: budget.max_iterations.to_string(),
            share: f64::from(ledger.iterations) / f64::from(budget.max_iterations),
        },
        LimitUse {
            budget: "max_wall_time_minutes",
            used: minutes(ledger.worked),
            limit: minutes(budget.max_wall_time),
            share: ledger.worked.as_secs_f64() / budget.max_wall_time.as_secs_f64(),
        },
    ];
    uses.extend(budget.max_cost.map(|limit| LimitUse {
        budget: "max_cost_usd_estimate",
        used: ledger.cost.to_string(),
        limit: limit.to_string(),
        share: ledger.cost.dollars() / limit.dollars(),
    }));
    uses.extend(budget.max_tokens.map(|limit| LimitUse {
        budget: "max_tokens_total",
        used: ledger.tokens.total().to_string(),
        limit: limit.to_string(),
        share: ledger.tokens.total() as f64 / limit as f64,
    }));
    uses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::TestRun;
    use crate::state::CallCharge;
    use crate::usage::{Tokens, Usd};

    fn called(call: u64, tokens: u64) -> JournalEntry {
        let tokens = Tokens {
            input: tokens,
            output: 0,
        };
        let cost = Some(Usd::ZERO);
        JournalEntry::Called {
            call,
            spent: CallCharge { tokens, cost },
        }
    }

    fn warned(run: &TestRun) -> Vec<(String, u32)> {
        let events = run.events().into_iter();
        let warnings = events.filter_map(|event| match event {
            EventKind::BudgetWarning { budget, percent, .. } => Some((budget, percent)),
            _ => None,
        });
        warnings.collect()
    }

    #[tokio::test]
    async fn each_share_is_recorded_and_the_largest_warned_about_once_also_after_a_resume_and_again_for_a_larger_budget()
     {
        let mut run = TestRun::new().await;
        run.settings.budget.max_tokens = Some(100);
        let share = |percent| ("max_tokens_total".to_owned(), percent);
        let mut progress = run.progress().await;
        progress.append(called(1, 49)).unwrap();
        progress.warn_about_budget().unwrap();
        assert_eq!(warned(&run), []);
        progress.append(called(2, 31)).unwrap();
        progress.warn_about_budget().unwrap();
        progress.warn_about_budget().unwrap();
        assert_eq!(warned(&run), [share(80)]);
        progress.checkpoint(None).await.unwrap();
        let mut again = run.progress().await;
        again.warn_about_budget().unwrap();
        assert_eq!(warned(&run).len(), 1);
        again.append(called(3, 20)).unwrap();
        again.warn_about_budget().unwrap();
        assert_eq!(warned(&run)[1..], [share(95)]);
        again.budget.max_tokens = Some(200);
        again.warn_about_budget().unwrap();
        assert_eq!(warned(&run)[2..], [share(50)]);
        let activity = again.files.read("activity.log").unwrap();
        assert!(
            !activity.contains("budget: 50 % of max_tokens_total is used: 80"),
            "{activity}"
        );
        assert!(
            activity.contains("budget: 95 % of max_tokens_total is used: 100 of 100"),
            "{activity}"
        );
    }

    #[test]
    fn every_limit_has_its_share() {
        let ledger = Ledger {
            iterations: 3,
            worked: std::time::Duration::from_secs(3600),
            cost: Usd::from_dollars(9.5).unwrap(),
            ..Ledger::default()
        };
        let uses = limit_uses(&ledger, &Budget::default());
        let shares: Vec<(&str, String)> = uses
            .iter()
            .map(|found| (found.budget, format!("{:.2}", found.share)))
            .collect();
        assert_eq!(
            shares,
            [
                ("max_iterations", "0.10".to_owned()),
                ("max_wall_time_minutes", "0.50".to_owned()),
                ("max_cost_usd_estimate", "0.95".to_owned()),
            ]
        );
    }
}
