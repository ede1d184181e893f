//! What a run may spend, and what it has spent by the host's own journal.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::state::{Entry, Line, Reserved};
use crate::usage::{Tokens, Usd};

/// What a run may spend. Every bound is finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Iterations.
    pub max_iterations: u32,
    /// Time at work. Waiting for a rate limit or for a person is none.
    pub max_wall_time: Duration,
    /// Dollars.
    pub max_cost: Option<Usd>,
    /// Tokens, both directions.
    pub max_tokens: Option<u64>,
    /// Gutters in a row, once the ladder is spent.
    pub max_consecutive_gutter: usize,
    /// Time spent waiting for rate limits and unreachable models.
    pub max_rate_limit_wait: Duration,
}

impl Default for Budget {
    /// What the configuration has when nobody sets it: 30 iterations, two hours, ten dollars.
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

/// A bound that is reached.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Exceeded {
    /// All iterations are spent.
    #[error("all {0} iterations are spent (max_iterations)")]
    Iterations(u32),
    /// The time is spent.
    #[error("{} minutes of work are spent (max_wall_time_minutes)", .0.as_secs() / 60)]
    WallTime(Duration),
    /// The next call could cost more than is left.
    #[error("the next call could cost more than is left: {spent} of {limit} spent (max_cost_usd_estimate)")]
    Cost {
        /// What is spent.
        spent: Usd,
        /// What may be.
        limit: Usd,
    },
    /// The next call could use more tokens than are left.
    #[error("the next call could use more than is left: {spent} of {limit} tokens spent (max_tokens_total)")]
    Tokens {
        /// What is spent.
        spent: u64,
        /// What may be.
        limit: u64,
    },
}

/// What a run has spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Iterations that are recorded.
    pub iterations: u32,
    /// Tokens, reservations of calls that never came back included.
    pub tokens: Tokens,
    /// Dollars, as far as prices are known.
    pub cost: Usd,
    /// Calls whose price nobody knows.
    pub unpriced_calls: u64,
    /// Time at work.
    pub worked: Duration,
    /// Time spent waiting.
    pub waited: Duration,
    /// Calls made so far.
    pub calls: u64,
}

impl Ledger {
    /// Adds up the journal. A call without an answer costs what was set aside for it.
    #[must_use]
    pub fn from_journal(lines: &[Line], now: Timestamp) -> Self {
        let mut ledger = Self::default();
        let mut calls: BTreeMap<u64, Reserved> = BTreeMap::new();
        for line in lines {
            match &line.entry {
                Entry::Calling {
                    call,
                    reserved: amount,
                    ..
                }
                | Entry::Called { call, spent: amount } => {
                    calls.insert(*call, *amount);
                }
                Entry::Recorded(_) => ledger.iterations += 1,
                Entry::Waited { milliseconds } => ledger.waited += Duration::from_millis(*milliseconds),
                _ => {}
            }
        }
        for amount in calls.values() {
            ledger.tokens += amount.tokens;
            ledger.cost += amount.cost.unwrap_or(Usd::ZERO);
            ledger.unpriced_calls += u64::from(amount.cost.is_none());
        }
        ledger.calls = calls.keys().last().copied().unwrap_or(0);
        ledger.worked = worked(lines, now).saturating_sub(ledger.waited);
        ledger
    }

    /// Whether another iteration may begin.
    pub fn check(&self, budget: &Budget) -> Result<(), Exceeded> {
        if self.iterations >= budget.max_iterations {
            return Err(Exceeded::Iterations(budget.max_iterations));
        }
        if self.worked >= budget.max_wall_time {
            return Err(Exceeded::WallTime(budget.max_wall_time));
        }
        self.check_call(
            budget,
            Reserved {
                tokens: Tokens::default(),
                cost: None,
            },
        )
    }

    /// Whether a call that may need this much can be made.
    pub fn check_call(&self, budget: &Budget, worst: Reserved) -> Result<(), Exceeded> {
        let tokens = self.tokens.total().saturating_add(worst.tokens.total());
        match budget.max_tokens {
            Some(limit) if tokens > limit || self.tokens.total() >= limit => {
                return Err(Exceeded::Tokens {
                    spent: self.tokens.total(),
                    limit,
                });
            }
            _ => {}
        }
        match budget.max_cost {
            Some(limit) if self.cost + worst.cost.unwrap_or(Usd::ZERO) > limit => Err(Exceeded::Cost {
                spent: self.cost,
                limit,
            }),
            _ => Ok(()),
        }
    }

    /// Time at work that is left.
    #[must_use]
    pub fn time_left(&self, budget: &Budget) -> Duration {
        budget.max_wall_time.saturating_sub(self.worked)
    }
}

/// The time during which some process had the run open. A process that was killed ends at its last line.
fn worked(lines: &[Line], now: Timestamp) -> Duration {
    let mut total = Duration::ZERO;
    let mut span: Option<(Timestamp, Timestamp)> = None;
    for line in lines {
        let opened = matches!(line.entry, Entry::Opened { .. });
        span = match span {
            Some((from, to)) if opened => {
                total += between(from, to);
                Some((line.at, line.at))
            }
            Some((from, _)) => Some((from, line.at)),
            None => Some((line.at, line.at)),
        };
    }
    let ended = matches!(lines.last().map(|line| &line.entry), Some(Entry::Ended { .. }));
    match span {
        Some((from, to)) => total + between(from, if ended { to } else { now }),
        None => total,
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}
