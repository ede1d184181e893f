//! What is done about a gutter: the mildest thing that was not tried yet.

use crate::state::{Entry, IterationRecord, Line, Rung};

use super::gutter;

/// Where a run stands: what counts for its next verdict.
///
/// A person who resumes a run has looked at it, so nothing from before counts against it any more.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The iterations that count, oldest first.
    pub history: Vec<IterationRecord>,
}

/// What follows from an iteration's score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another iteration.
    Continue,
    /// Another iteration, after this.
    Climb(Rung),
    /// The end: every rung was tried and it still goes in circles.
    GiveUp,
}

impl Standing {
    /// Reads the journal.
    #[must_use]
    pub fn from_journal(lines: &[Line]) -> Self {
        let from = lines
            .iter()
            .rposition(|line| matches!(line.entry, Entry::Ended { .. }))
            .map_or(0, |at| at + 1);
        let history = lines[from..]
            .iter()
            .filter_map(|line| match &line.entry {
                Entry::Recorded(record) => Some(record.as_ref().clone()),
                _ => None,
            })
            .collect();
        Self { history }
    }

    /// Decides what follows the newest iteration. `rungs` are those that can be climbed at all, in order.
    #[must_use]
    pub fn next(&self, rungs: &[Rung], max_consecutive_gutter: usize) -> Next {
        if !self.history.last().is_some_and(|record| record.score.gutter) {
            return Next::Continue;
        }
        let tried = self.tried();
        match rungs.iter().find(|rung| !tried.contains(rung)) {
            Some(rung) => Next::Climb(*rung),
            None if gutter::consecutive(&self.history) >= max_consecutive_gutter => Next::GiveUp,
            None => Next::Continue,
        }
    }

    /// The rungs climbed since the last progress.
    fn tried(&self) -> Vec<Rung> {
        let from = self
            .history
            .iter()
            .rposition(gutter::progressed)
            .map_or(0, |at| at + 1);
        self.history[from..]
            .iter()
            .filter_map(|record| record.rung)
            .collect()
    }
}
