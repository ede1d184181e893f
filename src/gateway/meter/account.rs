//! The sums of a meter, without its file.

use std::collections::BTreeSet;

use thiserror::Error;

use super::CallAmount;
use super::file::MeterEntry;
use super::prices::PriceList;
use crate::text::counted;
use crate::usage::{Tokens, Usd};

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

    /// Whether there is a limit at all.
    pub(super) fn is_limited(self) -> bool {
        self.cost.is_some() || self.tokens.is_some()
    }

    /// Whether cost is the only limit.
    pub(super) fn is_cost_only(self) -> bool {
        self.cost.is_some() && self.tokens.is_none()
    }

    /// Checks that a call of at most this amount stays within the limits after this usage.
    fn check(self, total: MeteredUsage, worst: CallAmount) -> Result<(), OverBudget> {
        let (spent, needed) = (total.tokens.total(), worst.tokens.total());
        if let Some(limit) = self.tokens.filter(|limit| spent.saturating_add(needed) > *limit) {
            return Err(OverBudget::Tokens {
                worst: needed,
                spent,
                limit,
            });
        }
        let (spent, needed) = (total.cost, worst.cost.unwrap_or(Usd::ZERO));
        match self.cost.filter(|limit| spent + needed > *limit) {
            Some(limit) => Err(OverBudget::Cost {
                worst: needed,
                spent,
                limit,
            }),
            None => Ok(()),
        }
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
        "the next call could use {}; {spent} of {limit} are used or reserved (max_tokens_total)",
        counted(*worst, "token")
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

/// The calls of a run.
#[derive(Default)]
pub(super) struct MeterAccount {
    calls: Vec<MeteredCall>,
    /// The sessions that have begun.
    begun: BTreeSet<u64>,
    /// The current session. Calls before the first one belong to session 0.
    session: u64,
}

struct MeteredCall {
    number: u64,
    session: u64,
    model: String,
    /// What it cost, or what is reserved for it while it is open.
    amount: CallAmount,
    is_open: bool,
}

impl MeterAccount {
    /// The account of a file. Calls that are open at its end count as reserved. Calls without a price get the current one.
    pub(super) fn from_entries(entries: impl IntoIterator<Item = MeterEntry>, prices: &PriceList) -> Self {
        let mut account = Self::default();
        for entry in entries {
            account.apply(entry);
        }
        for call in &mut account.calls {
            call.is_open = false;
            let CallAmount { tokens, cost } = &mut call.amount;
            // An upper bound: tokens that were written to a cache cost up to twice the price, and the file does not say
            // how many these are.
            *cost = cost.or_else(|| {
                let price = prices.price(&call.model)?;
                Some(price.cost_of(Tokens {
                    input: tokens.input.saturating_mul(2),
                    ..*tokens
                }))
            });
        }
        account
    }

    /// The number of the next call.
    pub(super) fn next_call(&self) -> u64 {
        let last = self.calls.iter().map(|call| call.number).max();
        last.unwrap_or(0) + 1
    }

    pub(super) fn apply(&mut self, entry: MeterEntry) {
        match entry {
            MeterEntry::Began { session, .. } => {
                self.begun.insert(session);
                self.session = session;
            }
            MeterEntry::Reserved { call, model, amount } => self.calls.push(MeteredCall {
                number: call,
                session: self.session,
                model,
                amount,
                is_open: true,
            }),
            MeterEntry::Spent { call, amount } => {
                let mut calls = self.calls.iter_mut();
                if let Some(open) = calls.rfind(|own| own.number == call && own.is_open) {
                    open.amount = amount;
                    open.is_open = false;
                }
            }
        }
    }

    /// Checks that a call of at most this amount stays within the limits.
    pub(super) fn check(&self, allowance: Allowance, worst: CallAmount) -> Result<(), OverBudget> {
        allowance.check(self.total(), worst)
    }

    /// Checks the same as if the calls in progress cost nothing.
    pub(super) fn check_settled(&self, allowance: Allowance, worst: CallAmount) -> Result<(), OverBudget> {
        allowance.check(sum(self.calls.iter().filter(|call| !call.is_open)), worst)
    }

    /// Whether any call is in progress.
    pub(super) fn has_open_calls(&self) -> bool {
        self.calls.iter().any(|call| call.is_open)
    }

    /// The model of a settled call without a known price.
    pub(super) fn unpriced_model(&self) -> Option<&str> {
        let mut unpriced = self.calls.iter().filter(|call| call.amount.cost.is_none());
        Some(unpriced.find(|call| !call.is_open)?.model.as_str())
    }

    /// Whether a call without a known price is in progress.
    pub(super) fn has_unpriced_reservation(&self) -> bool {
        let mut unpriced = self.calls.iter().filter(|call| call.amount.cost.is_none());
        unpriced.any(|call| call.is_open)
    }

    /// The usage of all calls, including reservations.
    pub(super) fn total(&self) -> MeteredUsage {
        sum(&self.calls)
    }

    /// The usage of a session, including reservations; `None` when it never began.
    pub(super) fn spent_in(&self, session: u64) -> Option<MeteredUsage> {
        let calls = self.calls.iter().filter(|call| call.session == session);
        self.begun.contains(&session).then(|| sum(calls))
    }
}

fn sum<'a>(calls: impl IntoIterator<Item = &'a MeteredCall>) -> MeteredUsage {
    let mut sum = MeteredUsage::default();
    for MeteredCall { amount, .. } in calls {
        sum.calls += 1;
        sum.tokens += amount.tokens;
        sum.cost += amount.cost.unwrap_or(Usd::ZERO);
        sum.unpriced_calls += u64::from(amount.cost.is_none());
    }
    sum
}
