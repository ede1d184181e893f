//! Escalation: what to do about a gutter is the mildest step that was not tried yet.

use crate::event::EventKind;
use crate::state::{IterationRecord, JournalEntry, JournalLine, Rung};

use super::budget::since_rest;
use super::error::Halt;
use super::gutter;
use super::progress::RunProgress;
use crate::text::one_line;

/// What is done before an iteration is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LadderDecision {
    /// Nothing.
    Continue,
    /// Ask the doctor.
    Consult,
    /// Take this step.
    Climb(Rung),
    /// The end: every step was tried and the run is still going in circles.
    GiveUp,
}

/// The iterations that count for the next verdict, oldest first. A person who resumes a run has looked at it, so earlier
/// ones no longer count against it.
pub(super) fn history(lines: &[JournalLine]) -> Vec<IterationRecord> {
    let records = since_rest(lines).iter().filter_map(|line| match &line.entry {
        JournalEntry::Recorded(record) => Some(record.as_ref().clone()),
        _ => None,
    });
    records.collect()
}

/// Decides what follows the newest iteration. `rungs` are the usable steps, in order.
pub(super) fn next_rung(
    history: &[IterationRecord],
    rungs: &[Rung],
    max_consecutive_gutter: usize,
) -> LadderDecision {
    if !history.last().is_some_and(|record| record.score.gutter) {
        return LadderDecision::Continue;
    }
    let progress = history.iter().rposition(gutter::has_progress);
    let since_progress = &history[progress.map_or(0, |at| at + 1)..];
    let tried = |rung: &Rung| since_progress.iter().any(|record| record.rung == Some(*rung));
    match rungs.iter().find(|rung| !tried(rung)) {
        Some(rung) => LadderDecision::Climb(*rung),
        None if gutter::consecutive(history) >= max_consecutive_gutter => LadderDecision::GiveUp,
        None => LadderDecision::Continue,
    }
}

/// Carries out a decision before its iteration is recorded, so that a crash cannot leave it half done.
pub(super) async fn carry_out(
    decision: LadderDecision,
    record: &mut IterationRecord,
    progress: &mut RunProgress<'_>,
) -> Result<(), Halt> {
    match decision {
        LadderDecision::Continue => Ok(()),
        LadderDecision::Consult => progress.consult_doctor(record).await.map(drop),
        LadderDecision::Climb(rung) => climb(rung, record, progress).await,
        LadderDecision::GiveUp => {
            let reason =
                "the run is going in circles and every step of the ladder was tried (max_consecutive_gutter)";
            record.fail(reason.to_owned());
            Ok(())
        }
    }
}

async fn climb(rung: Rung, record: &mut IterationRecord, progress: &mut RunProgress<'_>) -> Result<(), Halt> {
    record.rung = Some(rung);
    let detail = match rung {
        Rung::Rotate => {
            let sign = sign_text(record);
            progress.files.append("guardrails.md", &format!("\n{sign}\n"))?;
            sign
        }
        Rung::Fallback => {
            if let Some(fallback) = &progress.inputs.settings.profiles.fallback {
                record.next_profile.clone_from(fallback);
            }
            format!("going on with profile {}", record.next_profile)
        }
        Rung::Doctor => progress.consult_doctor(record).await?.to_owned(),
        Rung::Person => {
            record.pause(
                "the run is going in circles and needs a person (`ralph note`, then `ralph resume`)"
                    .to_owned(),
            );
            "waiting for a person".to_owned()
        }
    };
    let rung = rung.name().to_owned();
    progress.log_activity(&format!("ladder: {rung}: {detail}"))?;
    progress.inputs.reporter.emit(EventKind::Ladder { rung, detail });
    Ok(())
}

/// The sign that keeps the next iteration from repeating what failed.
fn sign_text(record: &IterationRecord) -> String {
    let repeated = match record.failures.first() {
        Some(failure) => {
            let command = one_line(&failure.command);
            format!("`{command}` failing with exit {}", failure.code)
        }
        None => "the same step".to_owned(),
    };
    format!(
        "### Sign after iteration {}\n- Seen: {repeated}, again and again.\n- Instead: do not repeat it; read the \
         error, question the approach and take a different one.",
        record.iteration
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::runner::gutter::tests::uneventful;
    use crate::state::{LoopScore, LoopSignals, RunOutcomeKind};

    use Rung::{Doctor, Fallback, Person, Rotate};

    const ALL: [Rung; 4] = [Rotate, Fallback, Doctor, Person];

    /// An iteration in a test table.
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

    #[rstest]
    #[case::nothing_yet(&[], &ALL, LadderDecision::Continue)]
    #[case::all_is_well(&[Gutter(None), Fine], &ALL, LadderDecision::Continue)]
    #[case::the_first_gutter(&[Fine, Gutter(None)], &ALL, LadderDecision::Climb(Rotate))]
    #[case::the_second(&[Gutter(Some(Rotate)), Gutter(None)], &ALL, LadderDecision::Climb(Fallback))]
    #[case::with_a_break(&[Gutter(Some(Rotate)), Fine, Gutter(None)], &ALL, LadderDecision::Climb(Fallback))]
    #[case::as_the_ladder_has_it(&[Gutter(None)], &[Doctor, Rotate], LadderDecision::Climb(Doctor))]
    #[case::passed_over(&[Gutter(Some(Rotate)), Gutter(None)], &[Rotate, Person], LadderDecision::Climb(Person))]
    #[case::again_after_progress(
        &[Gutter(Some(Rotate)), Gutter(Some(Fallback)), Progress, Gutter(None)],
        &ALL,
        LadderDecision::Climb(Rotate)
    )]
    #[case::spent_but_not_for_long(&[Gutter(Some(Rotate)), Gutter(None)], &[Rotate], LadderDecision::Continue)]
    #[case::spent_for_too_long(&[Gutter(Some(Rotate)), Gutter(None), Gutter(None)], &[Rotate], LadderDecision::GiveUp)]
    #[case::a_break_counts(
        &[Gutter(Some(Rotate)), Gutter(None), Fine, Gutter(None)],
        &[Rotate],
        LadderDecision::Continue
    )]
    #[case::no_ladder(&[Gutter(None), Gutter(None), Gutter(None)], &[], LadderDecision::GiveUp)]
    fn the_mildest_rung_that_was_not_tried_comes_next(
        #[case] history: &[Was],
        #[case] rungs: &[Rung],
        #[case] expected: LadderDecision,
    ) {
        let history: Vec<IterationRecord> = history.iter().map(|was| record(*was)).collect();
        assert_eq!(next_rung(&history, rungs, 3), expected);
    }

    #[test]
    fn what_came_before_an_end_no_longer_counts() {
        let line = |seq, entry| JournalLine {
            seq,
            at: jiff::Timestamp::UNIX_EPOCH,
            monotonic_ms: None,
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
        assert_eq!(history(&journal).len(), 1);
        assert_eq!(history(&journal[..3]).len(), 0);
        assert_eq!(history(&journal[..2]).len(), 2);
    }
}
