//! The sums, without any file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use thiserror::Error;

use super::Amount;
use super::book::Entry;
use super::tariff::Tariffs;
use crate::usage::{Price, Tokens, Usd};

/// What may be spent. Without a bound there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Dollars.
    pub cost: Option<Usd>,
    /// Tokens, both directions.
    pub tokens: Option<u64>,
}

impl Allowance {
    /// Not one call.
    pub const NOTHING: Self = Self {
        cost: None,
        tokens: Some(0),
    };

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
    /// Gives the calls a price that had none. What was kept of them does not tell what went to a cache, which costs up to
    /// twice the price; and calls of one session and model are one sum. So it is more than they cost rather than less.
    fn price_at(&mut self, price: Price) {
        if self.unpriced_calls > 0 {
            self.unpriced_calls = 0;
            self.cost += price.of(Tokens {
                input: self.tokens.input.saturating_mul(2),
                ..self.tokens
            });
        }
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.tokens += other.tokens;
        self.cost += other.cost;
        self.unpriced_calls += other.unpriced_calls;
    }
}

impl From<Amount> for Spent {
    /// One call.
    fn from(amount: Amount) -> Self {
        Self {
            calls: 1,
            tokens: amount.tokens,
            cost: amount.cost.unwrap_or(Usd::ZERO),
            unpriced_calls: u64::from(amount.cost.is_none()),
        }
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

/// Every call: those that are over by session and model, those that go on one by one.
#[derive(Default)]
pub(super) struct Account {
    settled: BTreeMap<(Session, String), Spent>,
    open: BTreeMap<u64, Open>,
    calls: u64,
    /// The numbers of the sessions that have begun.
    begun: BTreeSet<u64>,
    /// The one that calls are counted to.
    session: Session,
}

/// A session of an agent's, and the iteration it belongs to. Calls before the first one are of session 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Session {
    pub(super) iteration: u32,
    pub(super) number: u64,
}

struct Open {
    session: Session,
    model: String,
    amount: Amount,
}

impl Account {
    /// What a file says. Calls that are open at its end never came back; those whose price nobody knew have the one that
    /// is known now.
    pub(super) fn from_entries(entries: impl IntoIterator<Item = Entry>, tariffs: &Tariffs) -> Self {
        let mut account = Self::default();
        for entry in entries {
            account.apply(entry);
        }
        while let Some((_, open)) = account.open.pop_first() {
            account.settle(open.session, open.model, open.amount);
        }
        for ((_, model), spent) in &mut account.settled {
            if let Some(price) = tariffs.price_of(model) {
                spent.price_at(price);
            }
        }
        account
    }

    /// The number of the next call.
    pub(super) fn next_call(&self) -> u64 {
        self.calls + 1
    }

    /// Counts an entry.
    pub(super) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Began(session) => {
                self.begun.insert(session.number);
                self.session = session;
            }
            Entry::Reserved { call, model, amount } => {
                self.calls = self.calls.max(call);
                let session = self.session;
                let open = Open {
                    session,
                    model,
                    amount,
                };
                self.open.insert(call, open);
            }
            Entry::Spent { call, amount } => {
                if let Some(open) = self.open.remove(&call) {
                    self.settle(open.session, open.model, amount);
                }
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

    /// The model of a call that is over and whose price nobody knows.
    pub(super) fn unpriced(&self) -> Option<&str> {
        let mut settled = self.settled.iter();
        let unpriced = settled.find(|(_, spent)| spent.unpriced_calls > 0);
        unpriced.map(|((_, model), _)| model.as_str())
    }

    /// Whether a call goes on whose price nobody knows yet.
    pub(super) fn has_unpriced_open(&self) -> bool {
        self.open.values().any(|open| open.amount.cost.is_none())
    }

    /// Everything, with what is set aside.
    pub(super) fn total(&self) -> Spent {
        self.sum(|_| true)
    }

    /// What a session spent, with what is set aside; `None` when it never began.
    pub(super) fn spent_in(&self, number: u64) -> Option<Spent> {
        let begun = self.begun.contains(&number);
        begun.then(|| self.sum(|session| session.number == number))
    }

    /// Everything by iteration and model, with what is set aside.
    pub(super) fn items(&self) -> Vec<Item> {
        let mut sums: BTreeMap<(u32, &str), Spent> = BTreeMap::new();
        for (session, model, spent) in self.parts() {
            *sums.entry((session.iteration, model)).or_default() += spent;
        }
        let item = |((iteration, model), spent): ((u32, &str), Spent)| Item {
            iteration,
            model: model.to_owned(),
            spent,
        };
        sums.into_iter().map(item).collect()
    }

    fn sum(&self, wanted: impl Fn(Session) -> bool) -> Spent {
        let mut sum = Spent::default();
        let parts = self.parts().filter(|(session, ..)| wanted(*session));
        parts.for_each(|(.., spent)| sum += spent);
        sum
    }

    fn parts(&self) -> impl Iterator<Item = (Session, &str, Spent)> {
        let settled = self
            .settled
            .iter()
            .map(|((session, model), spent)| (*session, model.as_str(), *spent));
        let open = self
            .open
            .values()
            .map(|open| (open.session, open.model.as_str(), open.amount.into()));
        settled.chain(open)
    }

    fn settle(&mut self, session: Session, model: String, amount: Amount) {
        *self.settled.entry((session, model)).or_default() += amount.into();
    }
}
