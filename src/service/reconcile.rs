//! What a person did to an issue while a run worked on it.

use crate::assembly::issue::IssueResult;
use crate::github::{Issue, IssueStatus};

use super::issue_work::WorkOrder;

/// A change of an issue that ends the work on it.
#[derive(Debug)]
pub(super) struct Change {
    /// How the run ends.
    pub(super) order: WorkOrder,
    /// What the issue shows then.
    pub(super) result: IssueResult,
}

/// What the labels and the state of an issue in progress ask for. `None` if the work goes on: labels that are missing are set
/// again, and `status:ready` beside `status:in-progress` is removed.
pub(super) fn change_of(issue: &Issue) -> Option<Change> {
    let ended = |order, reason: &str, status| {
        Some(Change {
            order,
            result: IssueResult::Withdrawn {
                reason: reason.to_owned(),
                status,
            },
        })
    };
    if !issue.is_open() {
        return ended(WorkOrder::Stop, "the issue was closed", None);
    }
    if !issue.is_specification() {
        return ended(WorkOrder::Stop, "the label `spec` was removed", None);
    }
    let set = |status| issue.has_status(status).then_some(Some(status));
    if let Some(done) = set(IssueStatus::Done) {
        return ended(WorkOrder::Stop, "the issue was labelled as done", done);
    }
    if let Some(blocked) = set(IssueStatus::Blocked) {
        return ended(WorkOrder::Pause, "the issue was blocked", blocked);
    }
    if let Some(attention) = set(IssueStatus::NeedsAttention) {
        let reason = "the issue was labelled as needing attention";
        return ended(WorkOrder::Pause, reason, attention);
    }
    None
}
