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
mod lease_keeper;
mod poller;
mod reconcile;
#[cfg(feature = "store")]
mod submit;
#[cfg(feature = "store")]
mod worker;

pub(crate) use issue_work::{WorkOrder, work_on_issue};
pub(crate) use poller::{PollSettings, Poller};
#[cfg(feature = "store")]
pub(crate) use submit::{SubmitRequest, SubmittedRun, submit};
#[cfg(feature = "store")]
pub(crate) use worker::{Worker, WorkerEnd, WorkerOptions};
