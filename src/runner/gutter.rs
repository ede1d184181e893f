//! The loop score: how much a run looks like going in circles, from structured facts. No log is searched for the word
//! "error".

use std::collections::BTreeSet;

use crate::event::ScorePart;
use crate::exec::{CapturedOutput, Exit};
use crate::failure::{FailureSignature, FailureStream};
use crate::id::ObjectId;
use crate::sandbox::{Sandbox, clone_dir};
use crate::state::{CommandFailure, FileState, IterationRecord, LoopScore, LoopSignals};

use super::evidence::checkout_dir;

/// The lowest score of a gutter.
pub(super) const GUTTER_SCORE: f64 = 0.7;

const SAME_FAILURE: f64 = 0.5;
const EMPTY_DIFF: f64 = 0.3;
const FLIP_FLOP: f64 = 0.2;
const COMMITTED: f64 = 0.2;
/// Outweighs everything else: the other signals add up to 1 at most.
const PROGRESS: f64 = -1.0;

/// How many recent iterations are searched for the same failure.
const WINDOW: usize = 5;
/// How many iterations must show the same failure, or no changes.
const REPEATS: usize = 3;
/// How many failing tests the record of a failure names.
pub(super) const MAX_TESTS: usize = 100;

/// Scores the newest of these iterations, whose own `score` is not read.
///
/// After a verified checkbox, or tests that pass where they failed before, earlier iterations no longer count. New
/// commits lower the score but do not reset it.
pub(super) fn score(history: &[IterationRecord], base: &BaseFailures, diff_line_threshold: u64) -> LoopScore {
    let Some(newest) = history.last() else {
        return LoopScore::default();
    };
    // Commands that failed before the run began say nothing about an iteration that worked on something else.
    let is_elsewhere = is_planning(history) || has_new_work(history, diff_line_threshold);
    let counts = |failure: &CommandFailure| !(is_elsewhere && base.has(failure));
    let signals = LoopSignals {
        same_failure: same_failure(since_progress(history), counts),
        empty_diff: empty_diff(since_progress(history), diff_line_threshold),
        flip_flop: flip_flop(since_progress(history)),
        committed: newest.new_work_committed,
        tests_pass_now: tests_pass_now(history),
        checkbox_verified: !newest.newly_ticked.is_empty(),
    };
    let total = total(signals);
    LoopScore {
        total,
        gutter: total >= GUTTER_SCORE - f64::EPSILON,
        signals,
    }
}

/// What failed on the tree that the run began with, as far as its commands ran there.
#[derive(Debug, Default)]
pub(super) struct BaseFailures {
    signatures: BTreeSet<String>,
    tests: BTreeSet<String>,
}

impl BaseFailures {
    /// The failures of the runner's own commands in iterations that left the base tree as it was.
    pub(super) fn from_history(history: &[IterationRecord], base_tree: &ObjectId) -> Self {
        let mut base = Self::default();
        for record in history.iter().filter(|record| record.tree == *base_tree) {
            let checks = || record.tests.iter().chain(&record.evidence);
            let is_check = |failure: &&CommandFailure| checks().any(|check| check.command == failure.command);
            base.extend(record.failures.iter().filter(is_check));
        }
        base
    }

    /// Adds failures on the base commit.
    pub(super) fn extend<'a>(&mut self, failures: impl IntoIterator<Item = &'a CommandFailure>) {
        for failure in failures {
            self.signatures.insert(failure.signature.clone());
            self.tests.extend(failure.tests.iter().cloned());
        }
    }

    /// Whether all of this failed at the base.
    fn has(&self, failure: &CommandFailure) -> bool {
        let of_tests =
            !failure.tests.is_empty() && failure.tests.iter().all(|test| self.tests.contains(test));
        of_tests || self.signatures.contains(&failure.signature)
    }
}

/// The number of gutters at the end of the history, without a break.
pub(super) fn consecutive(history: &[IterationRecord]) -> usize {
    history
        .iter()
        .rev()
        .take_while(|record| record.score.gutter)
        .count()
}

/// Whether an iteration made progress, after which the ladder starts from its first step.
pub(super) fn has_progress(record: &IterationRecord) -> bool {
    record.score.signals.checkbox_verified || record.score.signals.tests_pass_now
}

/// The failure of a command, with a signature that is the same for the same failure.
pub(super) fn command_failure(command: &str, exit: &Exit, sandbox: &dyn Sandbox) -> CommandFailure {
    let stream = |output: &CapturedOutput| match output.ends() {
        (all, None) => FailureStream::from(without_paths(&all, sandbox).as_str()),
        (head, Some(tail)) => {
            FailureStream::with_gap(&without_paths(&head, sandbox), &without_paths(&tail, sandbox))
        }
    };
    let code = exit.status.shell_code();
    failure(command, code, &stream(&exit.stdout), &stream(&exit.stderr))
}

/// Like [`command_failure`], for a failure without a command: an unusable answer, an iteration that took too long.
pub(super) fn text_failure(command: &str, code: i32, output: &str) -> CommandFailure {
    failure(
        command,
        code,
        &FailureStream::default(),
        &FailureStream::from(output),
    )
}

fn failure(command: &str, code: i32, stdout: &FailureStream, stderr: &FailureStream) -> CommandFailure {
    let signature = FailureSignature::new(command, code, stdout, stderr);
    CommandFailure {
        command: command.to_owned(),
        code,
        signature: signature.hash().to_owned(),
        tests: signature.tests().iter().take(MAX_TESTS).cloned().collect(),
    }
}

/// The output without paths of the sandbox, so that a failure is the same in the clone and in a clean checkout.
fn without_paths(output: &str, sandbox: &dyn Sandbox) -> String {
    let places = [
        (checkout_dir(sandbox), "<clone>"),
        (clone_dir(sandbox), "<clone>"),
        (sandbox.root().to_owned(), "<root>"),
    ];
    places.iter().fold(output.to_owned(), |text, (dir, name)| {
        text.replace(&*dir.to_string_lossy(), name)
    })
}

/// The signals that were seen, each with what it adds to the score.
pub(super) fn score_parts(signals: LoopSignals) -> Vec<ScorePart> {
    let all = [
        ("same_failure", signals.same_failure, SAME_FAILURE),
        ("empty_diff", signals.empty_diff, EMPTY_DIFF),
        ("flip_flop", signals.flip_flop, FLIP_FLOP),
        ("committed", signals.committed, -COMMITTED),
        ("tests_pass_now", signals.tests_pass_now, PROGRESS),
        ("checkbox_verified", signals.checkbox_verified, PROGRESS),
    ];
    let seen = all.into_iter().filter(|(_, is_seen, _)| *is_seen);
    seen.map(|(signal, _, points)| ScorePart {
        signal: signal.to_owned(),
        points,
    })
    .collect()
}

fn total(signals: LoopSignals) -> f64 {
    let parts = score_parts(signals);
    // The sum of nothing is 0.0 and not -0.0.
    let sum = parts.iter().fold(0.0, |sum, part| sum + part.points);
    (sum.clamp(0.0, 1.0) * 100.0).round() / 100.0
}

/// The iterations after the last progress. The newest one is always included.
fn since_progress(history: &[IterationRecord]) -> &[IterationRecord] {
    let before_newest = &history[..history.len() - 1];
    let from = before_newest
        .iter()
        .rposition(has_progress)
        .map_or(0, |at| at + 1);
    &history[from..]
}

/// Whether the run has not changed a file yet, and its newest iteration left notes or ran commands.
fn is_planning(history: &[IterationRecord]) -> bool {
    let is_unchanged = |record: &IterationRecord| record.files.is_empty();
    history.last().is_some_and(|newest| newest.planned) && history.iter().all(is_unchanged)
}

/// Whether the newest iteration gave a file a content that it did not have before, with as many lines as count as a change.
fn has_new_work(history: &[IterationRecord], threshold: u64) -> bool {
    let Some((newest, earlier)) = history.split_last() else {
        return false;
    };
    let is_new = |file: &FileState| !earlier.iter().any(|record| record.files.contains(file));
    newest.changed_lines >= threshold.max(1) && newest.files.iter().any(is_new)
}

fn same_failure(history: &[IterationRecord], counts: impl Fn(&CommandFailure) -> bool) -> bool {
    let window = &history[history.len().saturating_sub(WINDOW)..];
    let Some(newest) = window.last() else { return false };
    newest
        .failures
        .iter()
        .filter(|failure| counts(failure))
        .any(|failure| {
            let seen = |record: &&IterationRecord| {
                record
                    .failures
                    .iter()
                    .any(|other| other.signature == failure.signature)
            };
            window.iter().filter(seen).count() >= REPEATS
        })
}

fn empty_diff(history: &[IterationRecord], threshold: u64) -> bool {
    history.len() >= REPEATS
        && history[history.len() - REPEATS..]
            .iter()
            .all(|record| record.changed_lines < threshold.max(1))
}

/// Whether the last four contents of a file are A, B, A, B, and the newest iteration brought nothing new to another file.
fn flip_flop(history: &[IterationRecord]) -> bool {
    let Some((newest, earlier)) = history.split_last() else {
        return false;
    };
    let is_new = |file: &FileState| !earlier.iter().any(|record| record.files.contains(file));
    let paths: BTreeSet<&str> = history
        .iter()
        .flat_map(|record| &record.files)
        .map(|file| file.path.as_str())
        .collect();
    paths.into_iter().any(|path| goes_back_and_forth(history, path)) && !newest.files.iter().any(is_new)
}

fn goes_back_and_forth(history: &[IterationRecord], path: &str) -> bool {
    let states: Vec<_> = history
        .iter()
        .filter_map(|record| record.files.iter().find(|file| file.path == path))
        .map(|file| &file.content)
        .collect();
    match states[..] {
        [.., a, b, c, d] => a == c && b == d && a != b,
        _ => false,
    }
}

fn tests_pass_now(history: &[IterationRecord]) -> bool {
    let mut ran = history.iter().rev().filter_map(|record| record.tests.as_ref());
    let newest_ran = history.last().is_some_and(|record| record.tests.is_some());
    match (ran.next(), ran.next()) {
        (Some(now), Some(before)) => newest_ran && now.passed() && !before.passed(),
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rstest::rstest;

    use super::*;
    use crate::id::ObjectId;
    use crate::state::{CheckResult, FileState, IterationVerdict};
    use crate::usage::{Tokens, Usd};

    /// What an iteration of a table left behind; the rest of its record does not count for the score.
    #[derive(Clone, Copy, Default)]
    struct Left {
        /// What failed, a letter each.
        failed: &'static str,
        lines: u64,
        /// What the one file holds now; nothing when it was not touched.
        content: Option<char>,
        committed: bool,
        planned: bool,
        tests: Option<i32>,
        ticked: bool,
    }

    const IDLE: Left = Left {
        failed: "f",
        lines: 0,
        content: None,
        committed: false,
        planned: false,
        tests: None,
        ticked: false,
    };
    const QUIET: Left = Left { failed: "", ..IDLE };
    const BUSY: Left = Left { lines: 9, ..IDLE };

    fn id(letter: char) -> ObjectId {
        ObjectId::parse(&letter.to_string().repeat(40)).unwrap()
    }

    /// An iteration in which nothing happened.
    pub(in crate::runner) fn uneventful() -> IterationRecord {
        IterationRecord {
            iteration: 1,
            tip: id('a'),
            tree: id('b'),
            profile: "p".to_owned(),
            agent: "actions".to_owned(),
            model: "m".to_owned(),
            summary: String::new(),
            ending: "continue".to_owned(),
            failures: Vec::new(),
            changed_lines: 0,
            files: Vec::new(),
            new_work_committed: false,
            planned: false,
            tests: None,
            ticked: Vec::new(),
            newly_ticked: Vec::new(),
            evidence: Vec::new(),
            evidence_apart: false,
            evidence_shares: Vec::new(),
            uncommitted: None,
            flaky: Vec::new(),
            weakened: Vec::new(),
            verdict: IterationVerdict::GoOn,
            score: LoopScore::default(),
            rung: None,
            next_profile: "p".to_owned(),
            tokens: Tokens::default(),
            cost: Usd::ZERO,
            milliseconds: 0,
        }
    }

    fn record(left: Left) -> IterationRecord {
        // `t` is a failure of the tests.
        let failure = |letter: char| {
            let command = if letter == 't' { "make test" } else { "make" };
            text_failure(command, 1, &letter.to_string())
        };
        let file = |content: char| FileState {
            path: "file".to_owned(),
            content: Some(id(content)),
        };
        let check = |code: i32| CheckResult {
            command: "make test".to_owned(),
            code,
            started: None,
            seconds: 0.0,
            commit: None,
        };
        IterationRecord {
            failures: left.failed.chars().map(failure).collect(),
            changed_lines: left.lines,
            files: left.content.map(file).into_iter().collect(),
            new_work_committed: left.committed,
            planned: left.planned,
            tests: left.tests.map(check),
            newly_ticked: left.ticked.then(|| "M1.1".to_owned()).into_iter().collect(),
            ..uneventful()
        }
    }

    /// The score of each iteration, as the loop computes them one after another.
    fn scores(history: &[Left]) -> Vec<LoopScore> {
        let mut records: Vec<IterationRecord> = Vec::new();
        for left in history {
            records.push(record(*left));
            let base = BaseFailures::from_history(&records, &id('b'));
            let scored = score(&records, &base, 3);
            records.last_mut().unwrap().score = scored;
        }
        records.iter().map(|record| record.score).collect()
    }

    #[rstest]
    #[case::nothing_yet(&[], 0.0)]
    #[case::one_iteration(&[IDLE], 0.0)]
    #[case::two_of_planning(&[IDLE, IDLE], 0.0)]
    #[case::idle_and_failing(&[IDLE, IDLE, IDLE], 0.8)]
    #[case::idle_and_fine(&[QUIET, QUIET, QUIET], 0.3)]
    #[case::busy_and_failing(&[BUSY, BUSY, BUSY], 0.5)]
    #[case::busy_at_last(&[IDLE, IDLE, BUSY], 0.5)]
    #[case::below_the_threshold(&[Left { lines: 2, ..IDLE }; 3], 0.8)]
    #[case::at_the_threshold(&[Left { lines: 3, ..IDLE }; 3], 0.5)]
    #[case::three_of_five(&[BUSY, QUIET, BUSY, QUIET, BUSY], 0.5)]
    #[case::two_of_five(&[BUSY, BUSY, QUIET, QUIET, QUIET, BUSY], 0.0)]
    #[case::the_failure_is_gone(&[BUSY, BUSY, BUSY, Left { failed: "", ..BUSY }], 0.0)]
    #[case::others_fail(&[BUSY, Left { failed: "g", ..BUSY }, Left { failed: "h", ..BUSY }], 0.0)]
    #[case::one_of_several_stays(
        &[Left { failed: "fa", ..BUSY }, Left { failed: "bf", ..BUSY }, Left { failed: "fc", ..BUSY }],
        0.5
    )]
    #[case::committed_each_time(&[Left { committed: true, ..BUSY }; 4], 0.3)]
    #[case::small_commits(&[Left { committed: true, ..IDLE }; 4], 0.6)]
    #[case::committed_and_fine(&[Left { committed: true, ..QUIET }], 0.0)]
    fn a_history_has_its_score(#[case] history: &[Left], #[case] expected: f64) {
        let last = scores(history).pop().unwrap_or_default();
        assert!((last.total - expected).abs() < 1e-9, "{last:?}");
        assert_eq!(last.gutter, expected >= GUTTER_SCORE);
    }

    #[rstest]
    #[case("abab", true)]
    #[case("cabab", true)]
    #[case("aba", false)]
    #[case("abba", false)]
    #[case("aaaa", false)]
    #[case("abac", false)]
    #[case("ab-ab", true)]
    fn a_file_flips_when_it_ends_in_a_b_a_b(#[case] contents: &str, #[case] flips: bool) {
        let history: Vec<Left> = contents
            .chars()
            .map(|content| Left {
                content: (content != '-').then_some(content),
                ..QUIET
            })
            .collect();
        assert_eq!(scores(&history).pop().unwrap().signals.flip_flop, flips);
    }

    #[test]
    fn the_same_failure_and_a_flip_are_just_enough() {
        let flip = ['a', 'b', 'a', 'b'].map(|content| Left {
            content: Some(content),
            ..BUSY
        });
        let gutters = scores(&flip).iter().map(|score| score.gutter).collect::<Vec<_>>();
        assert_eq!(gutters, [false, false, false, true]);
    }

    /// An iteration that read and planned while the tests failed as they did at the base.
    const PLANNING: Left = Left {
        failed: "t",
        planned: true,
        tests: Some(1),
        ..IDLE
    };
    /// The same without any trace.
    const NOTHING: Left = Left {
        planned: false,
        ..PLANNING
    };

    #[rstest]
    #[case::planning(&[PLANNING; 5], false)]
    #[case::doing_nothing(&[NOTHING; 3], true)]
    #[case::planning_after_code(&[PLANNING, Left { content: Some('c'), lines: 9, ..PLANNING }, PLANNING, PLANNING, PLANNING], true)]
    #[case::a_failure_of_the_agent(&[Left { failed: "tf", ..PLANNING }; 3], true)]
    fn a_failure_of_the_base_is_not_held_against_planning(#[case] history: &[Left], #[case] gutter: bool) {
        assert_eq!(scores(history).pop().unwrap().gutter, gutter);
    }

    #[test]
    fn a_failing_test_of_the_base_is_known_beside_others() {
        let failure = |tests: &[&str]| CommandFailure {
            tests: tests.iter().map(ToString::to_string).collect(),
            ..text_failure("make test", 1, &tests.concat())
        };
        let base = IterationRecord {
            failures: vec![failure(&["a", "b"])],
            ..record(NOTHING)
        };
        let base = BaseFailures::from_history(&[base], &id('b'));
        assert!(base.has(&failure(&["a"])) && base.has(&failure(&["a", "b"])));
        assert!(!base.has(&failure(&["a", "c"])) && !base.has(&failure(&[])));
    }

    #[test]
    fn new_work_beside_a_file_that_flips_is_no_flip_flop() {
        let mut records: Vec<IterationRecord> = "abab"
            .chars()
            .map(|content| {
                record(Left {
                    content: Some(content),
                    ..BUSY
                })
            })
            .collect();
        let flips =
            |records: &[IterationRecord]| score(records, &BaseFailures::default(), 3).signals.flip_flop;
        assert!(flips(&records));
        let other = FileState {
            path: "other".to_owned(),
            content: Some(id('e')),
        };
        records[3].files.push(other.clone());
        assert!(!flips(&records));
        records[2].files.push(other);
        assert!(flips(&records), "the other file has had this content before");
    }

    #[rstest]
    #[case::a_verified_box(Left { ticked: true, ..IDLE })]
    #[case::tests_that_pass_now(Left { tests: Some(0), ..IDLE })]
    fn progress_clears_the_slate(#[case] progress: Left) {
        let failing = Left {
            tests: Some(1),
            ..IDLE
        };
        let totals: Vec<f64> = scores(&[failing, IDLE, IDLE, progress, IDLE, IDLE, IDLE])
            .iter()
            .map(|score| score.total)
            .collect();
        assert_eq!(totals, [0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.8]);
    }

    #[rstest]
    #[case::first_run(&[Some(0)], false)]
    #[case::still_pass(&[Some(0), Some(0)], false)]
    #[case::fail_now(&[Some(0), Some(1)], false)]
    #[case::pass_now(&[Some(1), Some(0)], true)]
    #[case::pass_after_a_break(&[Some(1), None, Some(0)], true)]
    #[case::passed_a_while_ago(&[Some(1), Some(0), None], false)]
    fn tests_pass_now_when_they_failed_the_last_time(#[case] codes: &[Option<i32>], #[case] expected: bool) {
        let history: Vec<Left> = codes
            .iter()
            .map(|tests| Left {
                tests: *tests,
                ..BUSY
            })
            .collect();
        assert_eq!(scores(&history).pop().unwrap().signals.tests_pass_now, expected);
    }

    #[test]
    fn gutters_in_a_row_are_counted_from_the_newest() {
        let mut history: Vec<IterationRecord> = vec![record(IDLE); 5];
        for (record, gutter) in history.iter_mut().zip([true, true, false, true, true]) {
            record.score.gutter = gutter;
        }
        assert_eq!(consecutive(&history), 2);
        assert_eq!(consecutive(&history[..3]), 0);
    }
}
