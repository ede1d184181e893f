//! Work that outlives one run: issues and queued runs that are claimed, worked on and finished, one after another or several
//! at a time.

mod issue_work;
mod poller;
mod reconcile;
#[cfg(feature = "store")]
mod submit;

pub(crate) use issue_work::{WorkOrder, work_on_issue};
pub(crate) use poller::{PollSettings, Poller};
#[cfg(feature = "store")]
pub(crate) use submit::{SubmitRequest, SubmittedRun, submit};
