//! What is done about a gutter: the mildest thing that was not tried yet.

use crate::state::{IterationRecord, JournalEntry, JournalLine, Rung};

use super::budget::since_rest;
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
    pub fn from_journal(lines: &[JournalLine]) -> Self {
        let history = since_rest(lines)
            .iter()
            .filter_map(|line| match &line.entry {
                JournalEntry::Recorded(record) => Some(record.as_ref().clone()),
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::runner::gutter::tests::uneventful;
    use crate::state::{LoopScore, LoopSignals, RunOutcomeKind};

    use Rung::{Doctor, Fallback, Person, Rotate};

    const ALL: [Rung; 4] = [Rotate, Fallback, Doctor, Person];

    /// What a table says of an iteration.
    #[derive(Clone, Copy)]
    enum Was {
        Fine,
        Progress,
        Gutter(Option<Rung>),
    }

    use Was::{Fine, Gutter, Progress};

    fn record(was: Was) -> IterationRecord {
        IterationRecord {
            score: LoopScore {
                total: 0.0,
                gutter: matches!(was, Gutter(_)),
                signals: LoopSignals {
                    checkbox_verified: matches!(was, Progress),
                    ..LoopSignals::default()
                },
            },
            rung: match was {
                Gutter(rung) => rung,
                Fine | Progress => None,
            },
            ..uneventful()
        }
    }

    fn standing(history: &[Was]) -> Standing {
        Standing {
            history: history.iter().map(|was| record(*was)).collect(),
        }
    }

    #[rstest]
    #[case::nothing_yet(&[], &ALL, Next::Continue)]
    #[case::all_is_well(&[Gutter(None), Fine], &ALL, Next::Continue)]
    #[case::the_first_gutter(&[Fine, Gutter(None)], &ALL, Next::Climb(Rotate))]
    #[case::the_second(&[Gutter(Some(Rotate)), Gutter(None)], &ALL, Next::Climb(Fallback))]
    #[case::with_a_break(&[Gutter(Some(Rotate)), Fine, Gutter(None)], &ALL, Next::Climb(Fallback))]
    #[case::as_the_ladder_has_it(&[Gutter(None)], &[Doctor, Rotate], Next::Climb(Doctor))]
    #[case::passed_over(&[Gutter(Some(Rotate)), Gutter(None)], &[Rotate, Person], Next::Climb(Person))]
    #[case::anew_after_progress(
        &[Gutter(Some(Rotate)), Gutter(Some(Fallback)), Progress, Gutter(None)],
        &ALL,
        Next::Climb(Rotate)
    )]
    #[case::spent_but_not_for_long(&[Gutter(Some(Rotate)), Gutter(None)], &[Rotate], Next::Continue)]
    #[case::spent_for_too_long(&[Gutter(Some(Rotate)), Gutter(None), Gutter(None)], &[Rotate], Next::GiveUp)]
    #[case::a_break_counts(
        &[Gutter(Some(Rotate)), Gutter(None), Fine, Gutter(None)],
        &[Rotate],
        Next::Continue
    )]
    #[case::no_ladder(&[Gutter(None), Gutter(None), Gutter(None)], &[], Next::GiveUp)]
    fn the_mildest_rung_that_was_not_tried_comes_next(
        #[case] history: &[Was],
        #[case] rungs: &[Rung],
        #[case] expected: Next,
    ) {
        assert_eq!(standing(history).next(rungs, 3), expected);
    }

    #[test]
    fn what_came_before_an_end_no_longer_counts() {
        let line = |seq, entry| JournalLine {
            seq,
            at: jiff::Timestamp::UNIX_EPOCH,
            entry,
        };
        let gutter = || JournalEntry::Recorded(Box::new(record(Gutter(Some(Rotate)))));
        let ended = JournalEntry::Ended {
            outcome: RunOutcomeKind::Paused,
            reason: "a person".to_owned(),
        };
        let journal = [
            line(1, gutter()),
            line(2, gutter()),
            line(3, ended),
            line(4, gutter()),
        ];
        assert_eq!(Standing::from_journal(&journal).history.len(), 1);
        assert_eq!(Standing::from_journal(&journal[..3]).history.len(), 0);
        assert_eq!(Standing::from_journal(&journal[..2]).history.len(), 2);
    }
}
