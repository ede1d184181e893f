//! The sums of a meter, without its file.

use std::collections::{BTreeMap, BTreeSet};

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

impl MeteredUsage {
    fn count(&mut self, amount: CallAmount) {
        self.calls += 1;
        self.tokens += amount.tokens;
        self.cost += amount.cost.unwrap_or(Usd::ZERO);
        self.unpriced_calls += u64::from(amount.cost.is_none());
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

/// The calls of a run: sums of those that are over, and those that are in progress. The time to count a call does
/// not depend on the number of earlier calls.
#[derive(Default)]
pub(super) struct MeterAccount {
    /// The calls in progress, by number.
    open: BTreeMap<u64, MeteredCall>,
    /// The usage of all calls that are over.
    settled: MeteredUsage,
    /// The same by session.
    settled_in: BTreeMap<u64, MeteredUsage>,
    /// The model of a call that is over and has no known price.
    unpriced: Option<String>,
    /// The number of the last call.
    last: u64,
    /// The sessions that have begun.
    begun: BTreeSet<u64>,
    /// The current session. Calls before the first one belong to session 0.
    session: u64,
}

struct MeteredCall {
    session: u64,
    model: String,
    /// What it cost, or what is reserved for it while it is open.
    amount: CallAmount,
}

impl MeteredCall {
    /// The call with a price, if it has none and its model has one now.
    fn priced(mut self, prices: &PriceList) -> Self {
        let CallAmount { tokens, cost } = &mut self.amount;
        // An upper bound: tokens that were written to a cache cost up to twice the price, and the file does not say
        // how many these are.
        *cost = cost.or_else(|| {
            let price = prices.price(&self.model)?;
            Some(price.cost_of(Tokens {
                input: tokens.input.saturating_mul(2),
                ..*tokens
            }))
        });
        self
    }
}

impl MeterAccount {
    /// The account of a file. Calls that are open at its end count as reserved. Calls without a price get the current one.
    pub(super) fn from_entries(entries: impl IntoIterator<Item = MeterEntry>, prices: &PriceList) -> Self {
        let mut account = Self::default();
        for entry in entries {
            if let Some(over) = account.note(entry) {
                account.settle(over.priced(prices));
            }
        }
        for open in std::mem::take(&mut account.open).into_values() {
            account.settle(open.priced(prices));
        }
        account
    }

    /// The number of the next call.
    pub(super) fn next_call(&self) -> u64 {
        self.last + 1
    }

    pub(super) fn apply(&mut self, entry: MeterEntry) {
        if let Some(over) = self.note(entry) {
            self.settle(over);
        }
    }

    /// Takes in an entry. Returns the call that is over by it.
    fn note(&mut self, entry: MeterEntry) -> Option<MeteredCall> {
        match entry {
            MeterEntry::Began { session, .. } => {
                self.begun.insert(session);
                self.session = session;
                None
            }
            MeterEntry::Reserved { call, model, amount } => {
                self.last = self.last.max(call);
                let session = self.session;
                let reserved = MeteredCall {
                    session,
                    model,
                    amount,
                };
                self.open.insert(call, reserved)
            }
            MeterEntry::Spent { call, amount } => {
                let open = self.open.remove(&call)?;
                Some(MeteredCall { amount, ..open })
            }
        }
    }

    /// Counts a call that is over.
    fn settle(&mut self, call: MeteredCall) {
        self.settled.count(call.amount);
        self.settled_in
            .entry(call.session)
            .or_default()
            .count(call.amount);
        if call.amount.cost.is_none() && self.unpriced.is_none() {
            self.unpriced = Some(call.model);
        }
    }

    /// Checks that a call of at most this amount stays within the limits.
    pub(super) fn check(&self, allowance: Allowance, worst: CallAmount) -> Result<(), OverBudget> {
        allowance.check(self.total(), worst)
    }

    /// Checks the same as if the calls in progress cost nothing.
    pub(super) fn check_settled(&self, allowance: Allowance, worst: CallAmount) -> Result<(), OverBudget> {
        allowance.check(self.settled, worst)
    }

    /// Whether any call is in progress.
    pub(super) fn has_open_calls(&self) -> bool {
        !self.open.is_empty()
    }

    /// The model of a settled call without a known price.
    pub(super) fn unpriced_model(&self) -> Option<&str> {
        self.unpriced.as_deref()
    }

    /// Whether a call without a known price is in progress.
    pub(super) fn has_unpriced_reservation(&self) -> bool {
        self.open.values().any(|call| call.amount.cost.is_none())
    }

    /// The usage of all calls, including reservations.
    pub(super) fn total(&self) -> MeteredUsage {
        let mut total = self.settled;
        for call in self.open.values() {
            total.count(call.amount);
        }
        total
    }

    /// The usage of a session, including reservations; `None` when it never began.
    pub(super) fn spent_in(&self, session: u64) -> Option<MeteredUsage> {
        if !self.begun.contains(&session) {
            return None;
        }
        let mut spent = self.settled_in.get(&session).copied().unwrap_or_default();
        for call in self.open.values().filter(|call| call.session == session) {
            spent.count(call.amount);
        }
        Some(spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(input: u64, dollars: Option<f64>) -> CallAmount {
        CallAmount {
            tokens: Tokens {
                input,
                ..Tokens::default()
            },
            cost: dollars.map(|dollars| Usd::from_dollars(dollars).unwrap()),
        }
    }

    fn reserved(call: u64, amount: CallAmount) -> MeterEntry {
        MeterEntry::Reserved {
            call,
            model: format!("model-{call}"),
            amount,
        }
    }

    fn began(session: u64) -> MeterEntry {
        MeterEntry::Began {
            session,
            iteration: 1,
        }
    }

    fn calls_and_input(usage: MeteredUsage) -> (u64, u64) {
        (usage.calls, usage.tokens.input)
    }

    #[test]
    fn a_call_that_is_over_leaves_only_its_sums() {
        let mut account = MeterAccount::default();
        for _ in 0..1_000 {
            let call = account.next_call();
            account.apply(reserved(call, amount(100, Some(1.0))));
            let amount = amount(0, Some(0.0));
            account.apply(MeterEntry::Spent { call, amount });
        }
        assert_eq!(account.next_call(), 1_001);
        assert!(account.open.is_empty() && account.settled_in.len() == 1);
        assert_eq!(calls_and_input(account.total()), (1_000, 0));
        assert_eq!(account.total().cost, Usd::ZERO);
    }

    #[test]
    fn a_call_belongs_to_the_session_that_it_began_in() {
        let mut account = MeterAccount::default();
        account.apply(began(1));
        account.apply(reserved(1, amount(100, Some(1.0))));
        account.apply(began(2));
        account.apply(reserved(2, amount(100, None)));
        assert!(account.has_unpriced_reservation() && account.unpriced_model().is_none());
        let spent = amount(30, Some(0.25));
        account.apply(MeterEntry::Spent {
            call: 1,
            amount: spent,
        });
        assert_eq!(calls_and_input(account.spent_in(1).unwrap()), (1, 30));
        assert_eq!(calls_and_input(account.spent_in(2).unwrap()), (1, 100));
        assert_eq!(account.spent_in(3), None);
        assert_eq!(calls_and_input(account.total()), (2, 130));
        // A reservation may turn out to cost nothing, what is spent may not.
        let tokens = |limit| Allowance {
            cost: None,
            tokens: Some(limit),
        };
        assert!(account.check(tokens(130), amount(1, None)).is_err());
        assert!(account.check_settled(tokens(31), amount(1, None)).is_ok());
        assert!(account.check_settled(tokens(30), amount(1, None)).is_err());
        let spent = amount(40, None);
        account.apply(MeterEntry::Spent {
            call: 2,
            amount: spent,
        });
        assert_eq!(account.unpriced_model(), Some("model-2"));
        assert_eq!(account.total().unpriced_calls, 1);
        assert!(!account.has_open_calls());
    }

    #[test]
    fn a_call_that_a_file_leaves_open_counts_as_reserved() {
        let entries = [
            began(1),
            reserved(1, amount(100, Some(1.0))),
            reserved(2, amount(7, None)),
        ];
        let account = MeterAccount::from_entries(entries, &PriceList::default());
        assert!(!account.has_open_calls());
        assert_eq!(calls_and_input(account.spent_in(1).unwrap()), (2, 107));
        assert_eq!(account.unpriced_model(), Some("model-2"));
        assert_eq!(account.next_call(), 3);
    }
}
