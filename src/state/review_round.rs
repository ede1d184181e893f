//! Rounds of review: what reviewers ask for is the input of a run that goes on, also of one that was done.

use serde::{Deserialize, Serialize};

use crate::scm::ReviewComment;
use crate::text::counted;

use super::{Intervention, JournalEntry, JournalLine, RunOutcomeKind};

/// How many rounds of review a run has at most.
pub const REVIEW_ROUNDS: usize = 2;

/// What reviewers ask for at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewRound {
    /// The number of the pull request.
    pub pull_request: u64,
    /// What they wrote, oldest first.
    pub comments: Vec<ReviewComment>,
}

impl ReviewRound {
    /// A short description for people: one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = counted(self.comments.len(), "comment");
        format!("{count} of reviewers of pull request #{}", self.pull_request)
    }

    /// Whether this comment is part of it.
    #[must_use]
    pub fn has(&self, comment: &ReviewComment) -> bool {
        self.comments.iter().any(|known| known.is(comment))
    }
}

/// The rounds of review that a run has begun, in order.
pub fn review_rounds(lines: &[JournalLine]) -> impl Iterator<Item = &ReviewRound> {
    lines.iter().filter_map(review_in)
}

/// The journal since the run was last done. The rounds in it are those that the run works on.
#[must_use]
pub fn since_done(lines: &[JournalLine]) -> &[JournalLine] {
    let from = lines.iter().rposition(is_done_line).map_or(0, |at| at + 1);
    &lines[from..]
}

/// Whether a run was done before, and works on a round of review since.
#[must_use]
pub fn is_in_review(lines: &[JournalLine]) -> bool {
    lines.iter().any(is_done_line) && review_rounds(since_done(lines)).next().is_some()
}

/// Whether a run is done, and no round of review has begun since.
#[must_use]
pub fn is_done(lines: &[JournalLine]) -> bool {
    lines.iter().any(is_done_line) && review_rounds(since_done(lines)).next().is_none()
}

fn is_done_line(line: &JournalLine) -> bool {
    let done = RunOutcomeKind::Done;
    matches!(line.entry, JournalEntry::Ended { outcome, .. } if outcome == done)
}

fn review_in(line: &JournalLine) -> Option<&ReviewRound> {
    match line.intervention() {
        Some(Intervention::Review(round)) => Some(round),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;
    use crate::state::InterventionRequest;

    fn done() -> JournalEntry {
        JournalEntry::Ended {
            outcome: RunOutcomeKind::Done,
            reason: String::new(),
        }
    }

    fn paused() -> JournalEntry {
        JournalEntry::Ended {
            outcome: RunOutcomeKind::Paused,
            reason: String::new(),
        }
    }

    fn review(refused: Option<&str>) -> JournalEntry {
        let round = ReviewRound {
            pull_request: 1,
            comments: Vec::new(),
        };
        let asked = InterventionRequest::new(Intervention::Review(round), "me", Timestamp::UNIX_EPOCH);
        JournalEntry::Intervened {
            asked: Box::new(asked),
            refused: refused.map(str::to_owned),
        }
    }

    #[rstest]
    #[case::new(vec![], false, 0)]
    #[case::done(vec![done()], true, 0)]
    #[case::reviewed(vec![done(), review(None)], false, 1)]
    #[case::refused(vec![done(), review(Some("no"))], true, 0)]
    #[case::paused_after_a_review(vec![done(), review(None), paused()], false, 1)]
    #[case::done_again(vec![done(), review(None), done()], true, 0)]
    fn a_review_makes_a_done_run_go_on(
        #[case] entries: Vec<JournalEntry>,
        #[case] expected: bool,
        #[case] open: usize,
    ) {
        let line = |(seq, entry)| JournalLine {
            seq,
            at: Timestamp::UNIX_EPOCH,
            monotonic_ms: None,
            entry,
        };
        let lines: Vec<JournalLine> = (1..).zip(entries).map(line).collect();
        assert_eq!(is_done(&lines), expected);
        assert_eq!(review_rounds(since_done(&lines)).count(), open);
    }
}
