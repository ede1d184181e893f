//! The sums, without any file.

use std::collections::BTreeMap;

use thiserror::Error;

use super::Amount;
use super::book::Entry;
use crate::usage::{Tokens, Usd};

/// What may be spent. Without a bound there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Dollars.
    pub cost: Option<Usd>,
    /// Tokens, both directions.
    pub tokens: Option<u64>,
}

impl Allowance {
    /// Whether nothing but the cost bounds it.
    pub(super) fn is_cost_only(self) -> bool {
        self.cost.is_some() && self.tokens.is_none()
    }
}

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Calls.
    pub calls: u64,
    /// Tokens.
    pub tokens: Tokens,
    /// Dollars, as far as prices are known.
    pub cost: Usd,
    /// Calls whose price nobody knows.
    pub unpriced_calls: u64,
}

impl Spent {
    fn add(&mut self, amount: Amount) {
        self.calls += 1;
        self.tokens += amount.tokens;
        self.cost += amount.cost.unwrap_or(Usd::ZERO);
        self.unpriced_calls += u64::from(amount.cost.is_none());
    }
}

/// What was spent on one model in one iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The iteration.
    pub iteration: u32,
    /// The model, as the agent names it.
    pub model: String,
    /// What was spent, with what is set aside.
    pub spent: Spent,
}

/// A bound that the next call could break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Overdrawn {
    /// It could cost more than is left.
    #[error(
        "the next call could cost {worst}, with {spent} of {limit} spent or set aside (max_cost_usd_estimate)"
    )]
    Cost {
        /// The most that the call can cost.
        worst: Usd,
        /// What is spent or set aside.
        spent: Usd,
        /// What may be.
        limit: Usd,
    },
    /// It could use more tokens than are left.
    #[error(
        "the next call could use {worst} tokens, with {spent} of {limit} spent or set aside (max_tokens_total)"
    )]
    Tokens {
        /// The most that the call can use.
        worst: u64,
        /// What is spent or set aside.
        spent: u64,
        /// What may be.
        limit: u64,
    },
}

/// Every call: those that are over by iteration and model, those that go on one by one.
#[derive(Default)]
pub(super) struct Account {
    settled: BTreeMap<(u32, String), Spent>,
    open: BTreeMap<u64, Open>,
    calls: u64,
}

struct Open {
    iteration: u32,
    model: String,
    amount: Amount,
}

impl Account {
    /// What a file says. Calls that are open at its end never came back.
    pub(super) fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut account = Self::default();
        for entry in entries {
            account.apply(entry);
        }
        while let Some((_, open)) = account.open.pop_first() {
            account.settle(open.iteration, open.model, open.amount);
        }
        account
    }

    /// The number of the next call.
    pub(super) fn next_call(&self) -> u64 {
        self.calls + 1
    }

    /// Counts an entry, and says which call it is about.
    pub(super) fn apply(&mut self, entry: Entry) -> u64 {
        match entry {
            Entry::Reserved {
                call,
                iteration,
                model,
                amount,
            } => {
                self.calls = self.calls.max(call);
                let open = Open {
                    iteration,
                    model,
                    amount,
                };
                self.open.insert(call, open);
                call
            }
            Entry::Spent { call, amount } => {
                if let Some(open) = self.open.remove(&call) {
                    self.settle(open.iteration, open.model, amount);
                }
                call
            }
        }
    }

    /// Whether a call that can cost this much can be made.
    pub(super) fn check(&self, allowance: Allowance, worst: Amount) -> Result<(), Overdrawn> {
        let total = self.total();
        let (spent, needed) = (total.tokens.total(), worst.tokens.total());
        if let Some(limit) = allowance
            .tokens
            .filter(|limit| spent.saturating_add(needed) > *limit)
        {
            return Err(Overdrawn::Tokens {
                worst: needed,
                spent,
                limit,
            });
        }
        let (spent, needed) = (total.cost, worst.cost.unwrap_or(Usd::ZERO));
        match allowance.cost.filter(|limit| spent + needed > *limit) {
            Some(limit) => Err(Overdrawn::Cost {
                worst: needed,
                spent,
                limit,
            }),
            None => Ok(()),
        }
    }

    /// Whether a call is over whose price nobody knows.
    pub(super) fn has_unpriced(&self) -> bool {
        self.settled.values().any(|spent| spent.unpriced_calls > 0)
    }

    /// Whether a call goes on whose price nobody knows yet.
    pub(super) fn has_unpriced_open(&self) -> bool {
        self.open.values().any(|open| open.amount.cost.is_none())
    }

    /// Everything, with what is set aside.
    pub(super) fn total(&self) -> Spent {
        let mut total = Spent::default();
        for spent in self.settled.values() {
            total.calls += spent.calls;
            total.tokens += spent.tokens;
            total.cost += spent.cost;
            total.unpriced_calls += spent.unpriced_calls;
        }
        for open in self.open.values() {
            total.add(open.amount);
        }
        total
    }

    /// Everything by iteration and model, with what is set aside.
    pub(super) fn items(&self) -> Vec<Item> {
        let mut sums = self.settled.clone();
        for open in self.open.values() {
            let key = (open.iteration, open.model.clone());
            sums.entry(key).or_default().add(open.amount);
        }
        let item = |((iteration, model), spent)| Item {
            iteration,
            model,
            spent,
        };
        sums.into_iter().map(item).collect()
    }

    fn settle(&mut self, iteration: u32, model: String, amount: Amount) {
        self.settled.entry((iteration, model)).or_default().add(amount);
    }
}
