//! The index of runs, and the queue that workers claim runs from: in SQLite on one host, in Postgres for several.
//!
//! The store is never the truth. Run directories and state refs are: the index can be deleted and read again from them. What
//! is only here (the queue, what was spent on a day, requests of people, mirrored events, who may use the API) is in tables of
//! its own, which a rebuild does not touch.
//!
//! Both engines run the same statements. Where their SQL differs (the clock, JSON, row locks), the statement has a name in
//! braces, which `Dialect` replaces. Times are integer milliseconds by the clock of the database.

mod address;
mod api_creations;
mod api_secrets;
mod cancel;
mod counts;
mod dialect;
mod error;
mod events;
mod interventions;
mod label;
mod lease;
mod migrate;
mod pool;
mod queue;
mod retention;
mod runs;
mod wake;
mod workers;

pub use address::StoreAddress;
pub use api_creations::{ApiCreation, CreationAttempt};
pub use api_secrets::{ApiScope, ApiSecret, ApiSecretKind};
use dialect::Dialect;
pub use error::StoreError;
pub use events::{EventFile, EventPosition};
pub use interventions::WaitingIntervention;
pub use label::Label;
pub use lease::{LeaseState, QueueRelease};
pub use migrate::STORE_FORMAT;
pub use pool::Store;
use pool::{in_transaction, on_pool};
pub use queue::{ClaimRequest, QueueClaim, QueueRow, QueueState, SpendingLimits, Submission};
pub use runs::{IndexedRun, ListedRun, RunCursor, RunFilter};
pub use wake::WorkSignal;
pub use workers::ClaimedRun;
