//! What the transcript of an agent program tells.

use crate::exec::Status;
use crate::usage::{Tokens, Usd};

use super::actions::Claims;
use super::{Ending, Outcome, Step, Trouble};

/// The most of an agent's last words that is kept: what a person reads, not what a program prints.
const LONGEST_SUMMARY: usize = 4_000;

/// What a transcript tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The agent's last words.
    pub text: String,
    /// What was used.
    pub spent: Spent,
    /// How it ended.
    pub end: End,
}

/// What a session used, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens; `None` when nobody said.
    pub tokens: Option<Tokens>,
    /// What it cost; `None` when nobody said. Unknown is never zero.
    pub cost: Option<Usd>,
}

/// How a session ended, by its transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum End {
    /// The transcript breaks off.
    #[default]
    Missing,
    /// By itself.
    Well,
    /// By an error of its own.
    Badly {
        /// Which one.
        error: String,
    },
    /// What it may spend is spent.
    OverBudget {
        /// Who said so, and how.
        reason: String,
    },
    /// Its model did not answer.
    Trouble(Trouble),
}

impl Report {
    /// What follows for the iteration. Neither the exit nor the transcript is enough: only both say that all is well.
    pub(super) fn step(self, program: &str, status: Status) -> Step {
        let ending = match (status, self.end) {
            (Status::Code(0), End::Well) => Ending::Continue,
            (Status::Code(0), End::Missing) => unusable(format!("{program} ended without a result")),
            (Status::Code(0), End::Trouble(trouble)) => unusable(trouble.to_string()),
            (Status::Code(_), End::Trouble(trouble)) => return Step::Fail(trouble),
            (Status::Code(_), End::OverBudget { reason }) => Ending::OverBudget { reason },
            (Status::Code(_), End::Badly { error }) => unusable(error),
            (Status::Code(code), End::Well | End::Missing) => unusable(format!("{program}: exit {code}")),
            (Status::Signal(_) | Status::TimedOut | Status::Idle | Status::OutOfMemory, _) => {
                Ending::Rotate {
                    reason: format!("{program}: {status}"),
                }
            }
        };
        Step::Finish(Outcome {
            summary: self.text.trim().chars().take(LONGEST_SUMMARY).collect(),
            claims: Claims::default(),
            ending,
        })
    }
}

fn unusable(error: String) -> Ending {
    Ending::Unusable { error }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn trouble() -> Trouble {
        Trouble::Unavailable { said: "x".into() }
    }

    #[rstest]
    #[case::well(Status::Code(0), End::Well, "continue")]
    #[case::a_code_against_the_transcript(Status::Code(3), End::Well, "unusable: p: exit 3")]
    #[case::a_transcript_against_the_code(
        Status::Code(0),
        End::Badly { error: "no".into() },
        "unusable: no"
    )]
    #[case::broken_off(Status::Code(0), End::Missing, "unusable: p ended without a result")]
    #[case::died(Status::Code(1), End::Missing, "unusable: p: exit 1")]
    #[case::over_budget(Status::Code(1), End::OverBudget { reason: "spent".into() }, "over budget: spent")]
    #[case::trouble(Status::Code(1), End::Trouble(trouble()), "failed")]
    #[case::trouble_it_got_over(
        Status::Code(0),
        End::Trouble(trouble()),
        "unusable: the model does not answer: x"
    )]
    #[case::killed(Status::Idle, End::Well, "rotate: p: printed nothing for too long")]
    #[case::too_late(Status::TimedOut, End::Trouble(trouble()), "rotate: p: timed out")]
    fn the_exit_and_the_transcript_decide_together(
        #[case] status: Status,
        #[case] end: End,
        #[case] expected: &str,
    ) {
        let report = Report {
            end,
            ..Report::default()
        };
        let step = match report.step("p", status) {
            Step::Fail(_) => "failed".to_owned(),
            Step::Finish(outcome) => match outcome.ending {
                Ending::Continue => "continue".to_owned(),
                Ending::Unusable { error } => format!("unusable: {error}"),
                Ending::Rotate { reason } => format!("rotate: {reason}"),
                Ending::OverBudget { reason } => format!("over budget: {reason}"),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(step, expected);
    }

    #[test]
    fn last_words_are_kept_within_reason() {
        let report = Report {
            text: "ö".repeat(1_000_000),
            end: End::Well,
            ..Report::default()
        };
        let Step::Finish(outcome) = report.step("p", Status::Code(0)) else {
            panic!("it does not finish");
        };
        assert_eq!(outcome.summary.chars().count(), LONGEST_SUMMARY);
    }
}
