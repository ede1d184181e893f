//! The budget of a run, and what the run has used according to its journal.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::state::{CallCharge, Intervention, JournalEntry, JournalLine};
use crate::task::Frontmatter;
use crate::text::counted;
use crate::usage::{Tokens, Usd};

use super::error::Halt;

/// The upper bounds of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The number of iterations.
    pub max_iterations: u32,
    /// Time at work, without waiting for rate limits or for a person.
    pub max_wall_time: Duration,
    /// The cost of all calls whose price is known.
    pub max_cost: Option<Usd>,
    /// Input and output tokens.
    pub max_tokens: Option<u64>,
    /// Gutters in a row, once every step of the ladder was tried.
    pub max_consecutive_gutter: usize,
    /// Total time of waiting for rate limits and unreachable models.
    pub max_rate_limit_wait: Duration,
}

impl Default for Budget {
    /// The defaults of the configuration: 30 iterations, two hours, ten dollars.
    fn default() -> Self {
        const MINUTE: u64 = 60;
        Self {
            max_iterations: 30,
            max_wall_time: Duration::from_secs(120 * MINUTE),
            max_cost: Usd::from_dollars(10.0),
            max_tokens: None,
            max_consecutive_gutter: 3,
            max_rate_limit_wait: Duration::from_secs(360 * MINUTE),
        }
    }
}

impl Budget {
    /// Takes over the limits that an edit of the task sets.
    pub(super) fn follow(&mut self, before: &Frontmatter, after: &Frontmatter) {
        fn changed<T: Copy + PartialEq>(before: Option<T>, after: Option<T>) -> Option<T> {
            if before == after { None } else { after }
        }
        if let Some(count) = changed(before.max_iterations, after.max_iterations) {
            self.max_iterations = count.get();
        }
        if let Some(minutes) = changed(before.max_wall_time_minutes, after.max_wall_time_minutes) {
            self.max_wall_time = Duration::from_secs(60 * u64::from(minutes.get()));
        }
        if let Some(cost) = changed(before.max_cost_usd_estimate, after.max_cost_usd_estimate) {
            self.max_cost = Some(cost);
        }
        if let Some(count) = changed(before.max_tokens_total, after.max_tokens_total) {
            self.max_tokens = Some(count.get());
        }
        if let Some(count) = changed(before.max_consecutive_gutter, after.max_consecutive_gutter) {
            self.max_consecutive_gutter = count.get() as usize;
        }
    }
}

/// What a run has used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Recorded iterations.
    pub iterations: u32,
    /// Tokens, with the reservations of calls that never returned.
    pub tokens: Tokens,
    /// The cost of all calls whose price is known.
    pub cost: Usd,
    /// Calls whose price is unknown.
    pub unpriced_calls: u64,
    /// Time at work.
    pub worked: Duration,
    /// Time of waiting for models.
    pub waited: Duration,
    /// The number of the last call.
    pub calls: u64,
}

impl Ledger {
    /// Adds up the journal. A call that never returned counts as what was reserved for it. `since_last_line` is the time
    /// that the owner of the run has worked since the last line; a reader knows none.
    #[must_use]
    pub fn from_journal(lines: &[JournalLine], since_last_line: Duration) -> Self {
        let mut ledger = Self::default();
        let mut calls: BTreeMap<u64, CallCharge> = BTreeMap::new();
        let mut awaited_ci = Duration::ZERO;
        for line in lines {
            match &line.entry {
                JournalEntry::Calling {
                    call,
                    reserved: amount,
                    ..
                }
                | JournalEntry::Called { call, spent: amount } => {
                    calls.insert(*call, *amount);
                }
                JournalEntry::Recorded(_) => ledger.iterations += 1,
                JournalEntry::Waited { milliseconds } => {
                    ledger.waited += Duration::from_millis(*milliseconds);
                }
                JournalEntry::AwaitedCi { milliseconds } => {
                    awaited_ci += Duration::from_millis(*milliseconds);
                }
                _ => {}
            }
        }
        for amount in calls.values() {
            ledger.tokens += amount.tokens;
            ledger.cost += amount.cost.unwrap_or(Usd::ZERO);
            ledger.unpriced_calls += u64::from(amount.cost.is_none());
        }
        ledger.calls = calls.keys().last().copied().unwrap_or(0);
        let at_rest = ledger.waited + awaited_ci;
        ledger.worked = worked(lines, since_last_line).saturating_sub(at_rest);
        ledger
    }

    /// Checks whether another iteration may start.
    pub(super) fn check(&self, budget: &Budget) -> Result<(), Halt> {
        if self.iterations >= budget.max_iterations {
            let spent = match budget.max_iterations {
                1 => "the one iteration is spent".to_owned(),
                many => format!("all {many} iterations are spent"),
            };
            return exceeded(&format!("{spent} (max_iterations)"));
        }
        if self.worked >= budget.max_wall_time {
            let minutes = budget.max_wall_time.as_secs() / 60;
            let are = if minutes == 1 { "is" } else { "are" };
            let minutes = counted(minutes, "minute");
            return exceeded(&format!("{minutes} of work {are} spent (max_wall_time_minutes)"));
        }
        self.check_call(budget, CallCharge::default())
    }

    /// The tokens and the cost used since an earlier ledger of the same run.
    pub(super) fn used_since(&self, before: &Self) -> (Tokens, Usd) {
        let tokens = Tokens {
            input: self.tokens.input.saturating_sub(before.tokens.input),
            output: self.tokens.output.saturating_sub(before.tokens.output),
        };
        (tokens, self.cost.saturating_sub(before.cost))
    }

    /// Checks whether a call may be made that uses at most `worst`.
    pub(super) fn check_call(&self, budget: &Budget, worst: CallCharge) -> Result<(), Halt> {
        let spent = self.tokens.total();
        if let Some(limit) = budget.max_tokens
            && (spent.saturating_add(worst.tokens.total()) > limit || spent >= limit)
        {
            return exceeded(&format!(
                "the next call could use more than is left: {spent} of {} spent (max_tokens_total)",
                counted(limit, "token")
            ));
        }
        match budget.max_cost {
            Some(limit) if self.cost + worst.cost.unwrap_or(Usd::ZERO) > limit => exceeded(&format!(
                "the next call could cost more than is left: {} of {limit} spent (max_cost_usd_estimate)",
                self.cost
            )),
            _ => Ok(()),
        }
    }

    /// The time at work that is left.
    #[must_use]
    pub fn time_left(&self, budget: &Budget) -> Duration {
        budget.max_wall_time.saturating_sub(self.worked)
    }
}

fn exceeded(reason: &str) -> Result<(), Halt> {
    Err(Halt::failed(format!("budget exceeded: {reason}")))
}

/// The journal after the last end of the run, or after a person took iterations back. A person has seen what came before.
pub(super) fn since_rest(lines: &[JournalLine]) -> &[JournalLine] {
    let is_rest = |line: &JournalLine| {
        let is_end = matches!(line.entry, JournalEntry::Ended { .. });
        is_end || matches!(line.intervention(), Some(Intervention::Retry { .. }))
    };
    let from = lines.iter().rposition(is_rest).map_or(0, |at| at + 1);
    &lines[from..]
}

/// The time during which a process had the run open. A process that was killed counts until its last journal line.
fn worked(lines: &[JournalLine], since_last_line: Duration) -> Duration {
    let pairs = lines.windows(2).map(|pair| (&pair[0], &pair[1]));
    let of_one_process = pairs.filter(|(_, next)| !matches!(next.entry, JournalEntry::Opened { .. }));
    let recorded: Duration = of_one_process.map(|(from, to)| between(from, to)).sum();
    match lines.last() {
        None
        | Some(JournalLine {
            entry: JournalEntry::Ended { .. } | JournalEntry::Broken { .. },
            ..
        }) => recorded,
        Some(_) => recorded + since_last_line,
    }
}

/// The time between two lines of one process. Only lines of older versions, which have nothing else, need the wall clock.
fn between(from: &JournalLine, to: &JournalLine) -> Duration {
    match (from.monotonic_ms, to.monotonic_ms) {
        (Some(from), Some(to)) => Duration::from_millis(to.saturating_sub(from)),
        _ => Duration::try_from(to.at.duration_since(from.at)).unwrap_or(Duration::ZERO),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;
    use crate::state::RunOutcomeKind;

    fn usd(dollars: f64) -> Usd {
        Usd::from_dollars(dollars).unwrap()
    }

    fn amount(tokens: u64, cost: Option<f64>) -> CallCharge {
        CallCharge {
            tokens: Tokens {
                input: tokens,
                output: 0,
            },
            cost: cost.map(usd),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A journal with a line at each of these seconds.
    fn journal(entries: impl IntoIterator<Item = (i64, JournalEntry)>) -> Vec<JournalLine> {
        let line = |(seq, (second, entry))| JournalLine {
            seq,
            at: at(second),
            monotonic_ms: None,
            entry,
        };
        (1..).zip(entries).map(line).collect()
    }

    fn opened() -> JournalEntry {
        JournalEntry::Opened {
            owner: "o".to_owned(),
            format: 1,
        }
    }

    fn ended() -> JournalEntry {
        JournalEntry::Ended {
            outcome: RunOutcomeKind::Paused,
            reason: String::new(),
        }
    }

    fn calling(call: u64, reserved: CallCharge) -> JournalEntry {
        JournalEntry::Calling {
            call,
            iteration: 1,
            reserved,
        }
    }

    fn budget() -> Budget {
        Budget {
            max_iterations: 3,
            max_wall_time: Duration::from_secs(60),
            max_cost: Some(usd(1.0)),
            max_tokens: Some(1000),
            max_consecutive_gutter: 3,
            max_rate_limit_wait: Duration::from_secs(60),
        }
    }

    fn spent(tokens: u64, cost: f64) -> Ledger {
        Ledger {
            tokens: amount(tokens, None).tokens,
            cost: usd(cost),
            ..Ledger::default()
        }
    }

    #[test]
    fn a_call_costs_what_it_used_or_else_what_was_set_aside() {
        let ledger = Ledger::from_journal(
            &journal([
                (0, opened()),
                (1, calling(1, amount(500, Some(0.5)))),
                (
                    2,
                    JournalEntry::Called {
                        call: 1,
                        spent: amount(20, Some(0.01)),
                    },
                ),
                (3, calling(2, amount(300, Some(0.2)))),
                (4, calling(3, amount(7, None))),
            ]),
            Duration::ZERO,
        );
        assert_eq!(ledger.tokens.total(), 20 + 300 + 7);
        assert_eq!(ledger.cost, usd(0.21));
        assert_eq!((ledger.calls, ledger.unpriced_calls), (3, 1));
    }

    #[rstest]
    #[case::at_work(vec![(0, opened())], 40, 40)]
    #[case::at_rest(vec![(0, opened()), (10, ended())], 990, 10)]
    #[case::taken_up(vec![(0, opened()), (10, ended()), (500, opened())], 5, 15)]
    #[case::killed_at_its_last_line(
        vec![(0, opened()), (7, JournalEntry::IterationStarted { iteration: 1 }), (500, opened())],
        5,
        12
    )]
    #[case::waiting_for_ci_is_no_work(vec![(0, opened()), (30, JournalEntry::AwaitedCi { milliseconds: 20_000 })], 10, 20)]
    #[case::waiting_is_no_work(vec![(0, opened()), (30, JournalEntry::Waited { milliseconds: 20_000 })], 10, 20)]
    fn work_is_the_time_a_process_had_the_run(
        #[case] entries: Vec<(i64, JournalEntry)>,
        #[case] since_last_line: u64,
        #[case] expected: u64,
    ) {
        let since_last_line = Duration::from_secs(since_last_line);
        let mut lines = journal(entries);
        let expected = Duration::from_secs(expected);
        let by_the_wall_clock = Ledger::from_journal(&lines, since_last_line);
        assert_eq!(by_the_wall_clock.worked, expected);
        for line in &mut lines {
            line.monotonic_ms = u64::try_from(line.at.as_millisecond()).ok();
        }
        assert_eq!(Ledger::from_journal(&lines, since_last_line).worked, expected);
    }

    #[rstest]
    #[case::a_day_ahead(86_400)]
    #[case::a_day_back(-86_400)]
    fn a_wall_clock_that_jumps_changes_no_budget(#[case] jump: i64) {
        let entries = (0..3).map(|iteration| JournalEntry::IterationStarted { iteration });
        let entries = [opened()].into_iter().chain(entries).zip([0, 10, 20 + jump, 30]);
        let mut lines = journal(entries.map(|(entry, second)| (100_000 + second, entry)));
        for (line, milliseconds) in lines.iter_mut().zip([5, 10_005, 20_005, 30_005]) {
            line.monotonic_ms = Some(milliseconds);
        }
        let ledger = Ledger::from_journal(&lines, Duration::from_secs(2));
        assert_eq!(ledger.worked, Duration::from_secs(32));
    }

    #[rstest]
    #[case::fresh(Ledger::default(), None)]
    #[case::one_left(Ledger { iterations: 2, ..Ledger::default() }, None)]
    #[case::none_left(Ledger { iterations: 3, ..Ledger::default() }, Some("all 3 iterations are spent (max_iterations)"))]
    #[case::late(Ledger { worked: Duration::from_secs(59), ..Ledger::default() }, None)]
    #[case::too_late(
        Ledger { worked: Duration::from_secs(60), ..Ledger::default() },
        Some("1 minute of work is spent (max_wall_time_minutes)")
    )]
    #[case::tokens_left(spent(999, 0.0), None)]
    #[case::no_token_left(
        spent(1000, 0.0),
        Some("the next call could use more than is left: 1000 of 1000 tokens spent (max_tokens_total)")
    )]
    #[case::too_dear(
        spent(0, 1.5),
        Some("the next call could cost more than is left: $1.5000 of $1.0000 spent (max_cost_usd_estimate)")
    )]
    fn an_iteration_begins_only_within_the_budget(#[case] ledger: Ledger, #[case] exceeded: Option<&str>) {
        let reason = ledger.check(&budget()).err().map(|halt| match halt {
            Halt::End {
                kind: RunOutcomeKind::Failed,
                reason,
            } => reason,
            other => panic!("{other:?}"),
        });
        assert_eq!(
            reason,
            exceeded.map(|exceeded| format!("budget exceeded: {exceeded}"))
        );
    }

    #[rstest]
    #[case::fits(spent(100, 0.1), amount(900, Some(0.9)), true)]
    #[case::one_token_too_many(spent(100, 0.1), amount(901, Some(0.1)), false)]
    #[case::a_little_too_dear(spent(100, 0.1), amount(1, Some(0.900_000_001)), false)]
    #[case::an_unknown_price(spent(100, 0.1), amount(900, None), true)]
    #[case::more_than_can_be_counted(spent(1, 0.0), amount(u64::MAX, None), false)]
    fn a_call_is_made_only_when_its_worst_case_fits(
        #[case] ledger: Ledger,
        #[case] worst: CallCharge,
        #[case] made: bool,
    ) {
        assert_eq!(ledger.check_call(&budget(), worst).is_ok(), made);
    }

    #[test]
    fn what_has_no_limit_is_not_refused() {
        let budget = Budget {
            max_cost: None,
            max_tokens: None,
            ..budget()
        };
        let checked = spent(u64::MAX, 100.0).check_call(&budget, amount(1, Some(9.0)));
        assert!(checked.is_ok(), "{checked:?}");
    }

    #[test]
    fn the_time_left_is_never_below_nothing() {
        let late = Ledger {
            worked: Duration::from_secs(90),
            ..Ledger::default()
        };
        assert_eq!(late.time_left(&budget()), Duration::ZERO);
        assert_eq!(Ledger::default().time_left(&budget()), Duration::from_secs(60));
    }
}
