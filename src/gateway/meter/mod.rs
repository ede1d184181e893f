//! Counts the usage of a run's calls while their responses pass through the gateway.
//!
//! Before a call is forwarded, the most that it can cost is reserved ([`Meter::reserve`]). When its response has passed,
//! the usage that it reports replaces the reservation. A response without usage costs what was reserved. So concurrent
//! calls cannot spend the same money. Every change is written to a file first, and a meter that is opened again continues
//! from there.
//!
//! ```no_run
//! use ralph::gateway::meter::{Allowance, Meter, MeterSetup, PriceList};
//! use ralph::usage::Usd;
//!
//! let (sink, notices) = tokio::sync::mpsc::unbounded_channel();
//! let meter = Meter::open(MeterSetup {
//!     file: "spending.jsonl".into(),
//!     allowance: Allowance { cost: Usd::from_dollars(5.0), tokens: None },
//!     prices: PriceList::default(),
//!     sink: std::sync::Arc::new(sink),
//!     clock: ralph::clock::system(),
//! })?;
//! meter.begin_session(1, 1)?;
//! println!("{:?} so far", meter.spent());
//! # Ok::<(), ralph::gateway::meter::MeterError>(())
//! ```

mod account;
mod body;
mod file;
mod prices;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::model::ApiUsage;
use crate::text::error_chain;
use crate::usage::{CallBound, Tokens, Usd};
use account::MeterAccount;
use file::{MeterEntry, MeterFile};

pub use account::{Allowance, MeteredUsage, OverBudget};
pub(super) use body::{BodyMeter, MeteredBody};
pub use file::MeterError;
pub use prices::PriceList;

/// The parts of a meter.
pub struct MeterSetup {
    /// The file that every change is written to. It belongs to the run.
    pub file: PathBuf,
    /// The limit for the whole run, until [`Meter::allow`] changes it.
    pub allowance: Allowance,
    /// The prices of models.
    pub prices: PriceList,
    /// Receives notices.
    pub sink: Arc<dyn MeterSink>,
    /// The source of timestamps.
    pub clock: Arc<dyn Clock>,
}

/// Counts the usage of one run. Clones share their state.
#[derive(Clone)]
pub struct Meter(Arc<SharedMeter>);

struct SharedMeter {
    state: Mutex<MeterState>,
    /// Notified when a call is settled.
    settled: Notify,
    setup: MeterSetup,
}

struct MeterState {
    account: MeterAccount,
    file: MeterFile,
    allowance: Allowance,
    /// A call in progress without a bound. No other call is made at the same time.
    alone: Option<u64>,
}

impl Meter {
    /// Opens the file, or creates it. Calls without a response count as reserved. Calls that had no known price get the
    /// current one.
    pub fn open(setup: MeterSetup) -> Result<Self, MeterError> {
        let (file, entries) = MeterFile::open(&setup.file)?;
        let state = MeterState {
            account: MeterAccount::from_entries(entries, &setup.prices),
            file,
            allowance: setup.allowance,
            alone: None,
        };
        Ok(Self(Arc::new(SharedMeter {
            state: Mutex::new(state),
            settled: Notify::new(),
            setup,
        })))
    }

    /// Assigns later calls to this agent session. The caller chooses its number.
    pub fn begin_session(&self, number: u64, iteration: u32) -> Result<(), MeterError> {
        let entry = MeterEntry::Began {
            session: number,
            iteration,
        };
        self.state().record(self.now(), entry)
    }

    /// Changes the limit for the whole run. Calls in progress are not ended.
    pub fn allow(&self, allowance: Allowance) {
        self.state().allowance = allowance;
        // Calls that wait may fit now, or never.
        self.0.settled.notify_waiters();
    }

    /// The usage so far, including reservations.
    #[must_use]
    pub fn spent(&self) -> MeteredUsage {
        self.state().account.total()
    }

    /// The usage of one session, including reservations; `None` when the file has no such session.
    #[must_use]
    pub fn spent_in(&self, session: u64) -> Option<MeteredUsage> {
        self.state().account.spent_in(session)
    }

    /// Reserves the most that a call can cost. The sink receives a notice when the call is refused.
    ///
    /// A call that does not fit waits while calls in progress may still turn out to cost less than is reserved for them. One
    /// without a bound waits until no other call is in progress, and others wait for it. When only a cost limits the run, a
    /// call without a known price waits until no other such call is in progress: the cost that the service reports for that
    /// one decides about this one.
    pub async fn reserve(
        &self,
        model: &str,
        worst: impl Into<CallBound>,
    ) -> Result<Reservation, ReserveError> {
        let worst = worst.into();
        let reserved = loop {
            // Created before the check, so that no notification is missed.
            let settled = self.0.settled.notified();
            match self.try_reserve(model, worst) {
                Ok(None) => settled.await,
                Ok(Some(reservation)) => break Ok(reservation),
                Err(error) => break Err(error),
            }
        };
        match &reserved {
            Err(ReserveError::OverBudget(over)) => self.notify(MeterNotice::BudgetExceeded(*over)),
            Err(ReserveError::Unpriced { model }) => {
                self.notify(MeterNotice::Unpriced { model: model.clone() });
            }
            Ok(_) | Err(ReserveError::File(_)) => {}
        }
        reserved
    }

    pub(super) fn notify(&self, notice: MeterNotice) {
        self.0.setup.sink.notice(notice);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.setup.clock.now()
    }

    /// `None` when the call has to wait for another one.
    fn try_reserve(&self, model: &str, worst: CallBound) -> Result<Option<Reservation>, ReserveError> {
        let mut state = self.state();
        let allowance = state.allowance;
        let amount_of = |tokens: Tokens| {
            let price = self.0.setup.prices.price(model);
            let cost = price.map(|price| worst.cost_of(tokens, price));
            CallAmount { tokens, cost }
        };
        let needed = amount_of(worst.known.unwrap_or(worst.tokens));
        if let Err(over) = state.account.check(allowance, needed) {
            let may_fit_later = state.account.check_settled(allowance, needed).is_ok();
            return if may_fit_later { Ok(None) } else { Err(over.into()) };
        }
        let must_be_alone = worst.known.is_some() && allowance.is_limited();
        if state.alone.is_some() || (must_be_alone && state.account.has_open_calls()) {
            return Ok(None);
        }
        let amount = amount_of(worst.tokens);
        if allowance.is_cost_only() {
            if let Some(unpriced) = state.account.unpriced_model() {
                let model = unpriced.to_owned();
                return Err(ReserveError::Unpriced { model });
            }
            if amount.cost.is_none() && state.account.has_unpriced_reservation() {
                return Ok(None);
            }
        }
        let call = state.account.next_call();
        let model = model.to_owned();
        let entry = MeterEntry::Reserved {
            call,
            model: model.clone(),
            amount,
        };
        state.record(self.now(), entry).map_err(ReserveError::File)?;
        state.alone = must_be_alone.then_some(call);
        Ok(Some(Reservation {
            meter: self.clone(),
            call,
            model,
            amount,
            price_percent: worst.price_percent,
            basis: CostBasis::Reserved,
        }))
    }

    fn settle(&self, call: u64, amount: CallAmount) {
        let mut state = self.state();
        let entry = MeterEntry::Spent { call, amount };
        // When it fails, the file keeps the reservation, which is more than the usage.
        if let Err(error) = state.file.write(self.now(), &entry) {
            tracing::warn!(error = %error_chain(&error), "a call is counted as reserved");
        }
        state.account.apply(entry);
        state.alone = state.alone.filter(|alone| *alone != call);
        drop(state);
        self.0.settled.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, MeterState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterState {
    fn record(&mut self, at: Timestamp, entry: MeterEntry) -> Result<(), MeterError> {
        self.file.write(at, &entry)?;
        self.account.apply(entry);
        Ok(())
    }
}

/// Tokens, and their cost when the price is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallAmount {
    pub(super) tokens: Tokens,
    pub(super) cost: Option<Usd>,
}

/// The reserved amount of one call. Dropping it counts the amount.
pub struct Reservation {
    meter: Meter,
    call: u64,
    model: String,
    amount: CallAmount,
    price_percent: u64,
    basis: CostBasis,
}

impl Reservation {
    /// Counts the usage that the service reported, at the price or the cost that it reported, whichever is more.
    pub(super) fn used(self, usage: ApiUsage) {
        let price = self.meter.0.setup.prices.price(&self.model);
        let by_price = price.map(|price| usage.cost_at(price).percent(self.price_percent));
        let amount = CallAmount {
            tokens: usage.tokens(),
            cost: usage.quoted.max(by_price),
        };
        self.settle(amount);
    }

    /// Counts nothing, because the service refused the call before it did any work.
    pub(super) fn free(self) {
        self.settle(CallAmount {
            tokens: Tokens::default(),
            cost: Some(Usd::ZERO),
        });
    }

    fn settle(mut self, amount: CallAmount) {
        self.amount = amount;
        self.basis = CostBasis::Reported;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.meter.settle(self.call, self.amount);
        self.meter.notify(MeterNotice::Spent {
            model: std::mem::take(&mut self.model),
            tokens: self.amount.tokens,
            cost: self.amount.cost,
            basis: self.basis,
        });
    }
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostBasis {
    /// The service reported it.
    Reported,
    /// The service reported nothing, so it is the reserved amount.
    Reserved,
}

/// Why a call is refused.
#[derive(Debug, Error)]
pub enum ReserveError {
    /// It could exceed the limit.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// Only a cost limits the run, and the price of an earlier call is unknown.
    #[error(
        "the price of `{model}` is unknown, so max_cost_usd_estimate cannot be enforced: set the model's price in \
         [models.NAME], or set max_tokens_total"
    )]
    Unpriced {
        /// The model.
        model: String,
    },
    /// The file cannot be written.
    #[error(transparent)]
    File(MeterError),
}

/// An event that concerns the run.
#[derive(Clone, Debug, PartialEq)]
pub enum MeterNotice {
    /// A call is over and was counted.
    Spent {
        /// The model.
        model: String,
        /// Its tokens.
        tokens: Tokens,
        /// Its cost; `None` when the price is unknown.
        cost: Option<Usd>,
        /// Where these numbers come from.
        basis: CostBasis,
    },
    /// A call was refused because it could exceed the limit. The run is over.
    BudgetExceeded(OverBudget),
    /// A call was refused because its price is unknown. The user must decide.
    Unpriced {
        /// The model.
        model: String,
    },
    /// The service asks to wait (429, 529 or 503).
    RateLimited {
        /// The HTTP status.
        status: u16,
        /// Until when, if the service says so.
        until: Option<Timestamp>,
    },
    /// The service refused the stored credential, or none is stored. The user must store another one.
    CredentialRefused {
        /// What happened, and what to do.
        reason: String,
    },
}

/// Receives notices from any thread.
pub trait MeterSink: Send + Sync {
    /// Takes one notice. It must not block.
    fn notice(&self, notice: MeterNotice);
}

impl MeterSink for tokio::sync::mpsc::UnboundedSender<MeterNotice> {
    fn notice(&self, notice: MeterNotice) {
        // Fails when the receiver is gone, which then needs no notices.
        let _ = self.send(notice);
    }
}

impl MeterSink for Mutex<Vec<MeterNotice>> {
    fn notice(&self, notice: MeterNotice) {
        self.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
    }
}
