//! What a run remembers on the host: its directory, its journal, its copy of `.ralph/`, its lock and its inbox.
//!
//! The agent sees a copy of `.ralph/` in its clone. Where the two disagree, this one is right.

mod control;
mod error;
mod files;
mod journal;
mod lock;
mod record;
mod run_dir;

pub use control::{Inbox, Request};
pub use error::StateError;
pub use files::{Repaired, append_line, repair_log, write_atomically};
pub use journal::{CaughtUp, Entry, Journal, Line, OutcomeKind, Reserved};
pub use lock::{Lock, Owner};
pub use record::{Check, Failure, FileState, IterationRecord, Rung, Score, Signals, Verdict};
pub use run_dir::{RunDir, RunFacts, Runs};
