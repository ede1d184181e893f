//! How a run stands, by its facts and its journal: what `ralph status` shows and the store indexes.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::event::RunEnd;
use crate::runner::{self, Ledger};
use crate::state::{JournalEntry, JournalLine, RunFacts};
use crate::task::{CheckboxId, Task};

/// How a run stands.
pub(crate) struct RunSummary {
    /// `running`, `interrupted`, or how it ended.
    pub(crate) state: String,
    /// Why it ended.
    pub(crate) reason: Option<String>,
    /// The task with its newest edit. `None` if it cannot be parsed.
    pub(crate) task: Option<Task>,
    /// The checkboxes that are ticked.
    pub(crate) ticked: BTreeSet<CheckboxId>,
    /// What it used.
    pub(crate) used: Ledger,
    /// Where the pull request is.
    pub(crate) pull_request: Option<String>,
    /// When its journal got its newest line.
    pub(crate) updated: Timestamp,
}

impl RunSummary {
    /// The summary of a run with this journal. `is_running` is what the journal does not say: whether a process works on it.
    pub(crate) fn new(facts: &RunFacts, lines: &[JournalLine], is_running: bool) -> Self {
        let (state, reason) = match lines.last().map(|line| &line.entry) {
            _ if is_running => ("running".to_owned(), None),
            Some(JournalEntry::Ended { outcome, reason }) => (outcome.to_string(), Some(reason.clone())),
            Some(JournalEntry::Broken { reason }) => (RunEnd::Broken.to_string(), Some(reason.clone())),
            _ => ("interrupted".to_owned(), None),
        };
        Self {
            state,
            reason,
            task: Task::parse(facts.task_after(lines)).ok(),
            ticked: runner::ticked_after(facts, lines).unwrap_or_default(),
            used: Ledger::from_journal(lines, Duration::ZERO),
            pull_request: lines.iter().rev().find_map(|line| match &line.entry {
                JournalEntry::PullRequest { location, .. } => Some(location.clone()),
                _ => None,
            }),
            updated: lines.last().map_or(facts.created, |line| line.at),
        }
    }

    /// The title of the task; empty if it cannot be parsed.
    pub(crate) fn title(&self) -> String {
        self.task
            .as_ref()
            .map_or_else(String::new, |task| task.title().to_owned())
    }
}
