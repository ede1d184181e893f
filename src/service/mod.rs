//! Work that outlives one run: issues that are claimed, worked on and finished, one after another or several at a time.

mod issue_work;
mod poller;
mod reconcile;

pub(crate) use issue_work::{WorkOrder, work_on_issue};
pub(crate) use poller::{PollSettings, Poller};
