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

pub use control::{Inbox, Intervention};
pub use error::StateError;
pub use files::{Repaired, append_line, repair_log, write_atomically};
pub use journal::{CallUsage, Journal, JournalCatchUp, JournalEntry, JournalLine, RunOutcomeKind};
pub use lock::{RunLock, RunOwner};
pub use record::{
    CheckResult, CommandFailure, FileState, IterationRecord, IterationVerdict, LoopScore, LoopSignals, Rung,
};
pub use run_dir::{RunDir, RunFacts, Runs};
