//! Work that outlives one run: issues and queued runs that are claimed, worked on and finished, one after another or several
//! at a time.

#[cfg(feature = "store")]
mod attempt;
#[cfg(feature = "store")]
mod exchange;
#[cfg(feature = "store")]
mod host_health;
mod issue_work;
#[cfg(feature = "store")]
mod journals;
#[cfg(feature = "store")]
mod lease_keeper;
mod poller;
mod reconcile;
#[cfg(feature = "store")]
mod run_index;
mod slots;
#[cfg(feature = "store")]
mod submit;
mod supervise;
#[cfg(feature = "store")]
mod upkeep;
#[cfg(feature = "store")]
mod worker;

pub(crate) use issue_work::{WorkOrder, work_on_issue};
pub(crate) use poller::{NewBuilder, PollSettings, Poller};
#[cfg(feature = "store")]
pub(crate) use run_index::RunIndex;
pub(crate) use slots::RunSlots;
#[cfg(feature = "store")]
pub(crate) use submit::{SubmitRequest, SubmittedRun, submit};
pub(crate) use supervise::keep_going;
#[cfg(feature = "store")]
pub(crate) use upkeep::remove_ended_runs;
#[cfg(feature = "store")]
pub(crate) use worker::{Worker, WorkerEnd, WorkerOptions};
