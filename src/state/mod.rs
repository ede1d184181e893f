//! The state of a run on the host: the run directory with its journal, its run files, its lock and its inbox.
//!
//! The agent sees a copy of the run files in its clone. Where the two differ, the ones on the host win.

mod diagnosis;
mod error;
mod files;
mod inbox;
mod intervention;
mod journal;
mod lock;
mod note;
mod record;
mod review_round;
mod run_dir;

pub use diagnosis::{Diagnosis, DiagnosisParts, DoctorReport, SpecEdit};
pub use error::StateError;
#[cfg(feature = "serve")]
pub(crate) use files::whole_length;
pub(crate) use files::{append, entries_of, if_exists, open_to_append, to_json};
pub use files::{repair_log, write_atomically};
pub use inbox::Inbox;
pub use intervention::{HandFile, Intervention, InterventionRequest, Sign};
pub use journal::{
    CallCharge, Journal, JournalEntry, JournalLine, RunOutcomeKind, interventions, is_handled,
    standing_records,
};
pub use lock::{RunLock, RunOwner};
pub use note::{NoteKind, StructuredNote};
pub use record::{
    CheckResult, CommandFailure, FileState, FlakyCheck, IterationRecord, IterationVerdict, LoopScore,
    LoopSignals, Rung, UncommittedWork, WeakenedCheck, WeakeningKind,
};
pub use review_round::{REVIEW_ROUNDS, ReviewRound, is_done, is_in_review, review_rounds, since_done};
pub use run_dir::{RUN_FORMAT, RunDir, RunFacts, Runs};
