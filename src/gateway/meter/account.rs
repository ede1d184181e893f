//! The sums of a meter, without its file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use thiserror::Error;

use super::CallAmount;
use super::file::MeterEntry;
use super::prices::PriceList;
use crate::usage::{Price, Tokens, Usd};

/// The limit of a run's usage. `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Cost in dollars.
    pub cost: Option<Usd>,
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
}

impl Allowance {
    /// No calls at all.
    pub const NOTHING: Self = Self {
        cost: None,
        tokens: Some(0),
    };

    /// Whether cost is the only limit.
    pub(super) fn is_cost_only(self) -> bool {
        self.cost.is_some() && self.tokens.is_none()
    }
}

/// The usage of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeteredUsage {
    /// The number of calls.
    pub calls: u64,
    /// Their tokens.
    pub tokens: Tokens,
    /// The cost of calls with a known price.
    pub cost: Usd,
    /// The number of calls without a known price.
    pub unpriced_calls: u64,
}

impl MeteredUsage {
    /// Prices the calls that had no known price. This is an upper bound: tokens that were written to a cache cost up to
    /// twice the price, and the sum does not say how many these are.
    fn price_at(&mut self, price: Price) {
        if self.unpriced_calls > 0 {
            self.unpriced_calls = 0;
            self.cost += price.cost_of(Tokens {
                input: self.tokens.input.saturating_mul(2),
                ..self.tokens
            });
        }
    }
}

impl AddAssign for MeteredUsage {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.tokens += other.tokens;
        self.cost += other.cost;
        self.unpriced_calls += other.unpriced_calls;
    }
}

impl From<CallAmount> for MeteredUsage {
    /// The usage of one call.
    fn from(amount: CallAmount) -> Self {
        Self {
            calls: 1,
            tokens: amount.tokens,
            cost: amount.cost.unwrap_or(Usd::ZERO),
            unpriced_calls: u64::from(amount.cost.is_none()),
        }
    }
}

/// A limit that the next call could exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OverBudget {
    /// The limit on cost.
    #[error(
        "the next call could cost {worst}; {spent} of {limit} are used or reserved (max_cost_usd_estimate)"
    )]
    Cost {
        /// The most that the call can cost.
        worst: Usd,
        /// Used or reserved.
        spent: Usd,
        /// The limit.
        limit: Usd,
    },
    /// The limit on tokens.
    #[error(
        "the next call could use {worst} tokens; {spent} of {limit} are used or reserved (max_tokens_total)"
    )]
    Tokens {
        /// The most that the call can use.
        worst: u64,
        /// Used or reserved.
        spent: u64,
        /// The limit.
        limit: u64,
    },
}

/// The usage of settled calls by session and model, and the reservation of each open call.
#[derive(Default)]
pub(super) struct MeterAccount {
    settled: BTreeMap<(u64, String), MeteredUsage>,
    open: BTreeMap<u64, OpenCall>,
    last_call: u64,
    /// The sessions that have begun.
    begun: BTreeSet<u64>,
    /// The current session. Calls before the first one belong to session 0.
    session: u64,
}

struct OpenCall {
    session: u64,
    model: String,
    amount: CallAmount,
}

impl MeterAccount {
    /// The account of a file. Calls that are open at its end count as reserved. Calls without a price get the current one.
    pub(super) fn from_entries(entries: impl IntoIterator<Item = MeterEntry>, prices: &PriceList) -> Self {
        let mut account = Self::default();
        for entry in entries {
            account.apply(entry);
        }
        while let Some((_, call)) = account.open.pop_first() {
            account.settle(call.session, call.model, call.amount);
        }
        for ((_, model), usage) in &mut account.settled {
            if let Some(price) = prices.price(model) {
                usage.price_at(price);
            }
        }
        account
    }

    /// The number of the next call.
    pub(super) fn next_call(&self) -> u64 {
        self.last_call + 1
    }

    pub(super) fn apply(&mut self, entry: MeterEntry) {
        match entry {
            MeterEntry::Began { session, .. } => {
                self.begun.insert(session);
                self.session = session;
            }
            MeterEntry::Reserved {
                call,
                model,
                tokens,
                cost,
            } => {
                self.last_call = self.last_call.max(call);
                let open = OpenCall {
                    session: self.session,
                    model,
                    amount: CallAmount { tokens, cost },
                };
                self.open.insert(call, open);
            }
            MeterEntry::Spent { call, tokens, cost } => {
                if let Some(open) = self.open.remove(&call) {
                    self.settle(open.session, open.model, CallAmount { tokens, cost });
                }
            }
        }
    }

    /// Checks that a call of at most this amount stays within the limits.
    pub(super) fn check(&self, allowance: Allowance, worst: CallAmount) -> Result<(), OverBudget> {
        let total = self.total();
        let (spent, needed) = (total.tokens.total(), worst.tokens.total());
        if let Some(limit) = allowance
            .tokens
            .filter(|limit| spent.saturating_add(needed) > *limit)
        {
            return Err(OverBudget::Tokens {
                worst: needed,
                spent,
                limit,
            });
        }
        let (spent, needed) = (total.cost, worst.cost.unwrap_or(Usd::ZERO));
        match allowance.cost.filter(|limit| spent + needed > *limit) {
            Some(limit) => Err(OverBudget::Cost {
                worst: needed,
                spent,
                limit,
            }),
            None => Ok(()),
        }
    }

    /// The model of a settled call without a known price.
    pub(super) fn unpriced_model(&self) -> Option<&str> {
        let mut settled = self.settled.iter();
        let unpriced = settled.find(|(_, usage)| usage.unpriced_calls > 0);
        unpriced.map(|((_, model), _)| model.as_str())
    }

    /// Whether a call without a known price is in progress.
    pub(super) fn has_unpriced_reservation(&self) -> bool {
        self.open.values().any(|call| call.amount.cost.is_none())
    }

    /// The usage of all calls, including reservations.
    pub(super) fn total(&self) -> MeteredUsage {
        self.sum(|_| true)
    }

    /// The usage of a session, including reservations; `None` when it never began.
    pub(super) fn spent_in(&self, session: u64) -> Option<MeteredUsage> {
        let begun = self.begun.contains(&session);
        begun.then(|| self.sum(|other| other == session))
    }

    fn sum(&self, includes: impl Fn(u64) -> bool) -> MeteredUsage {
        let settled = self
            .settled
            .iter()
            .map(|((session, _), usage)| (*session, *usage));
        let open = self.open.values().map(|call| (call.session, call.amount.into()));
        let mut sum = MeteredUsage::default();
        for (session, usage) in settled.chain(open) {
            if includes(session) {
                sum += usage;
            }
        }
        sum
    }

    fn settle(&mut self, session: u64, model: String, amount: CallAmount) {
        *self.settled.entry((session, model)).or_default() += amount.into();
    }
}
