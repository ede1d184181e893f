//! What the calls of a run use, counted on the way: no word of the agent's is needed for it.
//!
//! Before a call is forwarded, the most that it can cost is set aside ([`Meter::reserve`]). When its answer has passed,
//! what it reports is counted in place of that; an answer without usage costs what was set aside. So calls that go on at
//! the same time cannot spend the same money. All of it is written down before it counts, and a meter that is opened
//! again goes on from there.

mod account;
mod body;
mod book;
mod call;
mod reading;
mod tariff;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::usage::{Tokens, Usd};
use account::{Account, Session};
use book::{Book, Entry};

pub use account::{Allowance, Item, Overdrawn, Spent};
pub use book::MeterError;
pub use tariff::Tariffs;

pub(super) use body::{MeteredBody, Metering};
pub(super) use call::{Call, CallError, Protocol};
pub(super) use reading::{Ending, Reader, Usage};

/// What a meter is made from.
pub struct MeterSetup {
    /// Where everything is written down; a file of the run's.
    pub file: PathBuf,
    /// What may be spent, all in all.
    pub allowance: Allowance,
    /// What models cost.
    pub tariffs: Tariffs,
    /// Who is told.
    pub sink: Arc<dyn MeterSink>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// Counts what the calls of one run use. Cheap to clone; all clones are one meter.
#[derive(Clone)]
pub struct Meter(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// A call is over.
    settled: Notify,
    tariffs: Tariffs,
    sink: Arc<dyn MeterSink>,
    clock: Arc<dyn Clock>,
}

struct State {
    account: Account,
    book: Book,
    allowance: Allowance,
}

impl Meter {
    /// Goes on with what the file says, or begins it. Calls that never came back cost what was set aside for them; those
    /// whose price nobody knew cost what the tariffs say now.
    pub fn open(setup: MeterSetup) -> Result<Self, MeterError> {
        let (book, entries) = Book::open(&setup.file)?;
        let state = State {
            account: Account::from_entries(entries, &setup.tariffs),
            book,
            allowance: setup.allowance,
        };
        Ok(Self(Arc::new(Shared {
            state: Mutex::new(state),
            settled: Notify::new(),
            tariffs: setup.tariffs,
            sink: setup.sink,
            clock: setup.clock,
        })))
    }

    /// Counts calls to this session of this iteration from now on. Its number is the caller's own choice.
    pub fn begin_session(&self, number: u64, iteration: u32) -> Result<(), MeterError> {
        let mut state = self.state();
        let entry = Entry::Began(Session { iteration, number });
        state.book.write(self.now(), &entry)?;
        state.account.apply(entry);
        Ok(())
    }

    /// Changes what may be spent, all in all. Calls that go on already are not ended by it.
    pub fn allow(&self, allowance: Allowance) {
        self.state().allowance = allowance;
    }

    /// What was spent so far, with what is set aside for calls that still go on.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.state().account.total()
    }

    /// The same of one session, also of one that a crash cut short; `None` when no meter of this file saw it begin.
    #[must_use]
    pub fn spent_in(&self, session: u64) -> Option<Spent> {
        self.state().account.spent_in(session)
    }

    /// The same, by iteration and model.
    #[must_use]
    pub fn statement(&self) -> Vec<Item> {
        self.state().account.items()
    }

    /// Sets aside the most that a call can cost. Its sink hears of a refusal.
    ///
    /// Where only a cost bounds the run, a call whose price is unknown waits until no other such call goes on: what the
    /// service quotes for that one decides about this one.
    pub async fn reserve(&self, model: &str, worst: Tokens) -> Result<Reservation, ReserveError> {
        let cost = self.0.tariffs.price_of(model).map(|price| price.of(worst));
        let amount = Amount { tokens: worst, cost };
        let set_aside = loop {
            // From here on no ending is missed.
            let settled = self.0.settled.notified();
            match self.set_aside(model, amount) {
                Ok(None) => settled.await,
                Ok(Some(reservation)) => break Ok(reservation),
                Err(error) => break Err(error),
            }
        };
        match &set_aside {
            Err(ReserveError::Overdrawn(overdrawn)) => {
                self.tell(Notice::BudgetExceeded(*overdrawn));
            }
            Err(ReserveError::Unpriced { model }) => self.tell(Notice::Unpriced { model: model.clone() }),
            Ok(_) | Err(ReserveError::Book(_)) => {}
        }
        set_aside
    }

    /// Tells whoever listens.
    pub(super) fn tell(&self, notice: Notice) {
        self.0.sink.notice(notice);
    }

    /// What time it is, by the meter's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// `None` while it is not known whether the call can be made.
    fn set_aside(&self, model: &str, amount: Amount) -> Result<Option<Reservation>, ReserveError> {
        let mut state = self.state();
        let allowance = state.allowance;
        state.account.check(allowance, amount)?;
        if allowance.is_cost_only() {
            if let Some(unpriced) = state.account.unpriced() {
                let model = unpriced.to_owned();
                return Err(ReserveError::Unpriced { model });
            }
            if amount.cost.is_none() && state.account.has_unpriced_open() {
                return Ok(None);
            }
        }
        let call = state.account.next_call();
        let entry = Entry::Reserved {
            call,
            model: model.to_owned(),
            amount,
        };
        state.book.write(self.now(), &entry).map_err(ReserveError::Book)?;
        state.account.apply(entry);
        Ok(Some(Reservation {
            meter: self.clone(),
            call,
            model: model.to_owned(),
            amount,
            settled: false,
        }))
    }

    fn settle(&self, call: u64, amount: Amount) {
        let mut state = self.state();
        let entry = Entry::Spent { call, amount };
        // Should it fail, the reservation stands in the file, which is more than what was spent.
        if let Err(error) = state.book.write(self.now(), &entry) {
            tracing::warn!(%error, "what a call cost cannot be written down");
        }
        state.account.apply(entry);
        drop(state);
        self.0.settled.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens and, where the price is known, dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) tokens: Tokens,
    pub(super) cost: Option<Usd>,
}

/// What is set aside for one call. Dropped without a word, it is spent.
pub struct Reservation {
    meter: Meter,
    call: u64,
    model: String,
    amount: Amount,
    settled: bool,
}

impl Reservation {
    /// Counts what the call used in place of what was set aside.
    pub(super) fn used(self, usage: Usage) {
        let by_price = || Some(usage.cost_at(self.meter.0.tariffs.price_of(&self.model)?));
        let amount = Amount {
            tokens: usage.tokens(),
            cost: usage.quoted.or_else(by_price),
        };
        self.settle(amount, Basis::Reported);
    }

    /// The call was refused before any work was done: it costs nothing.
    pub fn free(self) {
        let nothing = Amount {
            tokens: Tokens::default(),
            cost: Some(Usd::ZERO),
        };
        self.settle(nothing, Basis::Reported);
    }

    fn settle(mut self, amount: Amount, basis: Basis) {
        self.settled = true;
        self.meter.settle(self.call, amount);
        self.tell(amount, basis);
    }

    fn tell(&self, amount: Amount, basis: Basis) {
        self.meter.tell(Notice::Spent {
            model: self.model.clone(),
            tokens: amount.tokens,
            cost: amount.cost,
            basis,
        });
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.settled {
            self.meter.settle(self.call, self.amount);
            self.tell(self.amount, Basis::Reserved);
        }
    }
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The service said so.
    Reported,
    /// It said nothing, so it is what was set aside.
    Reserved,
}

/// Why a call must not be made.
#[derive(Debug, Error)]
pub enum ReserveError {
    /// It could cost more than is left.
    #[error(transparent)]
    Overdrawn(#[from] Overdrawn),
    /// Only a cost bounds the run, and nobody knows what calls cost.
    #[error(
        "the cost of `{model}` is unknown, so max_cost_usd_estimate cannot hold: give the model's price in \
         [models.NAME] or set max_tokens_total"
    )]
    Unpriced {
        /// The model.
        model: String,
    },
    /// It cannot be written down.
    #[error(transparent)]
    Book(MeterError),
}

/// What a run should know of its calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A call is over and was counted.
    Spent {
        /// The model.
        model: String,
        /// Tokens.
        tokens: Tokens,
        /// Dollars; `None` when nobody knows the price.
        cost: Option<Usd>,
        /// Where these come from.
        basis: Basis,
    },
    /// A call was refused because it could cost more than is left: the run is over.
    BudgetExceeded(Overdrawn),
    /// A call was refused because nobody knows what it costs: a person must decide.
    Unpriced {
        /// The model.
        model: String,
    },
    /// The service asks to wait (429, 529 or 503).
    RateLimited {
        /// The status.
        status: u16,
        /// Until when, where it says so.
        until: Option<Timestamp>,
    },
    /// The service refused the stored credential, or there is none: a person must store another one.
    CredentialRefused {
        /// What happened and what to do.
        reason: String,
    },
}

/// Receives what a run should know of its calls, from any thread, at once.
pub trait MeterSink: Send + Sync {
    /// Takes one notice. It must not block.
    fn notice(&self, notice: Notice);
}

impl MeterSink for tokio::sync::mpsc::UnboundedSender<Notice> {
    fn notice(&self, notice: Notice) {
        // Whoever does not listen any more need not know.
        let _ = self.send(notice);
    }
}

impl MeterSink for Mutex<Vec<Notice>> {
    fn notice(&self, notice: Notice) {
        self.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
    }
}
