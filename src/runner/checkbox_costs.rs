//! What each checkbox cost, by the journal.
//!
//! A journal says what each call cost, and which iteration ticked which checkboxes. It does not say which call was for which
//! checkbox. So what was spent since the tick before belongs to the checkboxes that an iteration ticks, in equal parts. That
//! includes the doctor, and iterations that a retry took back: they were paid for, too. What is spent after the last tick
//! belongs to no checkbox. Together the parts are the whole cost.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::{CallCharge, JournalEntry, JournalLine, standing_records};
use crate::usage::Usd;

/// The part of a checkbox in the cost of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckboxCost {
    /// The id; `None` for what was spent after the last tick.
    pub checkbox: Option<String>,
    /// The iteration that ticked it last; 0 for what was spent after the last tick.
    pub iteration: u32,
    /// The cost; `None` if the price of a call in it is unknown.
    pub cost: Option<Usd>,
}

/// The parts of the checkboxes, in the order of their first tick.
#[must_use]
pub fn checkbox_costs(lines: &[JournalLine]) -> Vec<CheckboxCost> {
    let standing: BTreeSet<u32> = standing_records(lines)
        .iter()
        .map(|record| record.iteration)
        .collect();
    let mut charges = charges(lines);
    let mut costs: Vec<CheckboxCost> = Vec::new();
    let mut spent = Some(Usd::ZERO);
    for line in lines {
        match &line.entry {
            JournalEntry::Calling { call, .. } | JournalEntry::Called { call, .. } => {
                // The first line of a call has all of its cost.
                if let Some(charge) = charges.remove(call) {
                    spent = sum(spent, charge.cost);
                }
            }
            JournalEntry::Recorded(record)
                if standing.contains(&record.iteration) && !record.newly_ticked.is_empty() =>
            {
                for (checkbox, part) in record
                    .newly_ticked
                    .iter()
                    .zip(parts(spent, record.newly_ticked.len()))
                {
                    add(&mut costs, checkbox, record.iteration, part);
                }
                spent = Some(Usd::ZERO);
            }
            _ => {}
        }
    }
    if spent != Some(Usd::ZERO) {
        costs.push(CheckboxCost {
            checkbox: None,
            iteration: 0,
            cost: spent,
        });
    }
    costs
}

/// What each call cost. One that never returned counts as what was reserved for it.
fn charges(lines: &[JournalLine]) -> BTreeMap<u64, CallCharge> {
    let charge = |line: &JournalLine| match &line.entry {
        JournalEntry::Calling { call, reserved, .. } => Some((*call, *reserved)),
        JournalEntry::Called { call, spent } => Some((*call, *spent)),
        _ => None,
    };
    lines.iter().filter_map(charge).collect()
}

fn parts(cost: Option<Usd>, count: usize) -> Vec<Option<Usd>> {
    match cost {
        None => vec![None; count],
        Some(cost) => {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            cost.split(count).map(Some).collect()
        }
    }
}

/// A checkbox that lost its tick and got it back has the cost of both.
fn add(costs: &mut Vec<CheckboxCost>, checkbox: &str, iteration: u32, part: Option<Usd>) {
    match costs
        .iter_mut()
        .find(|known| known.checkbox.as_deref() == Some(checkbox))
    {
        Some(known) => {
            known.iteration = iteration;
            known.cost = sum(known.cost, part);
        }
        None => costs.push(CheckboxCost {
            checkbox: Some(checkbox.to_owned()),
            iteration,
            cost: part,
        }),
    }
}

fn sum(one: Option<Usd>, other: Option<Usd>) -> Option<Usd> {
    Some(one? + other?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::runner::budget::Ledger;
    use crate::runner::gutter::tests::uneventful;
    use crate::state::{Intervention, InterventionRequest, IterationRecord};
    use crate::usage::Tokens;

    fn journal(entries: Vec<JournalEntry>) -> Vec<JournalLine> {
        let line = |(seq, entry)| JournalLine {
            seq,
            at: jiff::Timestamp::UNIX_EPOCH,
            monotonic_ms: None,
            entry,
        };
        (1..).zip(entries).map(line).collect()
    }

    fn charge(cents: Option<u32>) -> CallCharge {
        CallCharge {
            tokens: Tokens::default(),
            cost: cents.map(Usd::from_cents),
        }
    }

    fn calling(call: u64, cents: Option<u32>) -> JournalEntry {
        JournalEntry::Calling {
            call,
            iteration: 1,
            reserved: charge(cents),
        }
    }

    fn called(call: u64, cents: Option<u32>) -> JournalEntry {
        JournalEntry::Called {
            call,
            spent: charge(cents),
        }
    }

    fn recorded(iteration: u32, ticked: &[&str]) -> JournalEntry {
        JournalEntry::Recorded(Box::new(IterationRecord {
            iteration,
            newly_ticked: ticked.iter().map(|id| (*id).to_owned()).collect(),
            ..uneventful()
        }))
    }

    fn retry(from: u32) -> JournalEntry {
        let asked = InterventionRequest {
            id: "1".to_owned(),
            by: "someone".to_owned(),
            at: jiff::Timestamp::UNIX_EPOCH,
            intervention: Intervention::Retry { from },
        };
        JournalEntry::Intervened {
            asked: Box::new(asked),
            refused: None,
        }
    }

    /// `M1.1 in 2: $0.1000`, for each.
    fn shown(entries: Vec<JournalEntry>) -> Vec<String> {
        let show = |one: CheckboxCost| {
            let cost = one.cost.map_or("unknown".to_owned(), |cost| cost.to_string());
            format!(
                "{} in {}: {cost}",
                one.checkbox.unwrap_or("-".to_owned()),
                one.iteration
            )
        };
        checkbox_costs(&journal(entries)).into_iter().map(show).collect()
    }

    #[test]
    fn what_was_spent_since_the_last_tick_is_divided() {
        let entries = vec![
            calling(1, Some(90)),
            called(1, Some(10)),
            recorded(1, &[]),
            calling(2, Some(20)),
            recorded(2, &["M1.1", "M1.2", "M1.3"]),
            called(3, Some(5)),
            recorded(3, &["M1.4"]),
            called(4, Some(7)),
            recorded(4, &[]),
        ];
        let expected = [
            "M1.1 in 2: $0.1000",
            "M1.2 in 2: $0.1000",
            "M1.3 in 2: $0.1000",
            "M1.4 in 3: $0.0500",
            "- in 0: $0.0700",
        ];
        assert_eq!(shown(entries), expected);
    }

    #[test]
    fn an_unknown_price_stays_unknown() {
        let entries = vec![
            called(1, None),
            called(2, Some(10)),
            recorded(1, &["M1.1"]),
            called(3, Some(5)),
            recorded(2, &["M1.2"]),
        ];
        assert_eq!(shown(entries), ["M1.1 in 1: unknown", "M1.2 in 2: $0.0500"]);
    }

    #[test]
    fn what_a_retry_takes_back_was_paid_for() {
        let entries = vec![
            called(1, Some(10)),
            recorded(1, &["M1.1"]),
            called(2, Some(20)),
            recorded(2, &["M1.2"]),
            retry(1),
            called(3, Some(30)),
            recorded(3, &["M1.2"]),
        ];
        assert_eq!(shown(entries), ["M1.1 in 1: $0.1000", "M1.2 in 3: $0.5000"]);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole(
            steps in proptest::collection::vec((0..500_u32, 0..4_usize, any::<bool>()), 0..20),
        ) {
            let ids = ["M1.1", "M1.2", "M1.3"];
            let mut entries = Vec::new();
            for ((iteration, call), (cents, ticks, returned)) in (1..).zip(1..).zip(steps) {
                entries.push(calling(call, Some(cents)));
                if returned {
                    entries.push(called(call, Some(cents / 2)));
                }
                entries.push(recorded(iteration, &ids[..ticks]));
                if ticks == 2 {
                    entries.push(retry(iteration / 2));
                }
            }
            let lines = journal(entries);
            let parts: Usd = checkbox_costs(&lines).iter().map(|one| one.cost.unwrap()).sum();
            prop_assert_eq!(parts, Ledger::from_journal(&lines, Duration::ZERO).cost);
        }
    }
}
