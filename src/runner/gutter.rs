//! Going in circles, as a number made of structured facts. Nothing here reads a log for the word "error".

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex_lite::Regex;
use sha2::{Digest, Sha256};

use crate::exec::Exit;
use crate::sandbox::{Sandbox, clone_dir};
use crate::state::{Failure, IterationRecord, Score, Signals};

use super::evidence::checkout_dir;

/// From this score on an iteration is a gutter.
pub const GUTTER: f64 = 0.7;

const SAME_FAILURE: f64 = 0.5;
const EMPTY_DIFF: f64 = 0.3;
const FLIP_FLOP: f64 = 0.2;
const COMMITTED: f64 = 0.2;

const WINDOW: usize = 5;
const REPEATS: usize = 3;
const SIGNATURE_CHARS: usize = 2000;

/// Scores the newest of these iterations. Its own `score` is not read.
///
/// A verified checkbox, or tests that pass where they failed before, clear the slate: what came earlier no longer
/// counts. New work that was committed counts against a gutter but does not clear it.
#[must_use]
pub fn score(history: &[IterationRecord], diff_line_threshold: u64) -> Score {
    let Some(newest) = history.last() else {
        return Score::default();
    };
    let signals = Signals {
        same_failure: same_failure(since_progress(history)),
        empty_diff: empty_diff(since_progress(history), diff_line_threshold),
        flip_flop: flip_flop(since_progress(history)),
        committed: newest.new_work_committed,
        tests_pass_now: tests_pass_now(history),
        checkbox_verified: !newest.newly_ticked.is_empty(),
    };
    let total = total(signals);
    Score {
        total,
        gutter: total >= GUTTER - f64::EPSILON,
        signals,
    }
}

/// How many of the newest iterations were gutters without a break.
#[must_use]
pub(super) fn consecutive(history: &[IterationRecord]) -> usize {
    history
        .iter()
        .rev()
        .take_while(|record| record.score.gutter)
        .count()
}

/// Whether an iteration made progress that lets the ladder begin anew.
#[must_use]
pub(super) fn progressed(record: &IterationRecord) -> bool {
    record.score.signals.checkbox_verified || record.score.signals.tests_pass_now
}

/// The failure of a command in a form that recognises it again.
#[must_use]
pub(super) fn failure(command: &str, exit: &Exit, sandbox: &dyn Sandbox) -> Failure {
    let stderr = exit.stderr.text();
    let output = if stderr.trim().is_empty() {
        exit.stdout.text()
    } else {
        stderr
    };
    failure_of_text(command, exit.status.shell_code(), &placeless(&output, sandbox))
}

/// The same for a failure that is no command: an answer that could not be used, an iteration that took too long.
#[must_use]
pub fn failure_of_text(command: &str, code: i32, output: &str) -> Failure {
    let mut hash = Sha256::new();
    hash.update(format!("{command}\0{code}\0{}", normalise(output)));
    let number = hash
        .finalize()
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    let signature = format!("{number:016x}");
    Failure {
        command: command.to_owned(),
        code,
        signature,
    }
}

/// The beginning of an output without what differs from one time to the next.
#[must_use]
pub fn normalise(output: &str) -> String {
    static CHANGING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            (r"\x1b\[[0-9;]*[A-Za-z]", ""),
            (
                r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?",
                "<time>",
            ),
            (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b", "<time>"),
            (r"0x[0-9a-fA-F]+", "<address>"),
            (
                r"\b\d+([.,]\d+)?\s?(ns|µs|us|ms|s|secs?|seconds?|minutes?|min)\b",
                "<duration>",
            ),
            (r"(/private)?(/tmp|/var/tmp|/var/folders)/[^\s:'\x22)]+", "<temp>"),
            (r"\b(pid|PID|thread|Thread)[ =:#]\s?\d+", "<process>"),
            (r"[ \t]+", " "),
        ]
        .into_iter()
        .filter_map(|(pattern, with)| Some((Regex::new(pattern).ok()?, with)))
        .collect()
    });
    // Normalised first, cut second: a longer time stamp must not push different text into the window.
    let head: String = output.chars().take(SIGNATURE_CHARS * 2).collect();
    let text = CHANGING.iter().fold(head, |text, (pattern, with)| {
        pattern.replace_all(&text, *with).into_owned()
    });
    text.trim().chars().take(SIGNATURE_CHARS).collect()
}

/// The output without where the sandbox is. What fails alike in the clone and in a clean checkout is one failure.
fn placeless(output: &str, sandbox: &dyn Sandbox) -> String {
    let places = [
        (checkout_dir(sandbox), "<clone>"),
        (clone_dir(sandbox), "<clone>"),
        (sandbox.root().to_owned(), "<root>"),
    ];
    places.iter().fold(output.to_owned(), |text, (dir, name)| {
        text.replace(&*dir.to_string_lossy(), name)
    })
}

fn total(signals: Signals) -> f64 {
    if signals.checkbox_verified || signals.tests_pass_now {
        return 0.0;
    }
    let weigh = |present: bool, weight: f64| if present { weight } else { 0.0 };
    let sum = weigh(signals.same_failure, SAME_FAILURE)
        + weigh(signals.empty_diff, EMPTY_DIFF)
        + weigh(signals.flip_flop, FLIP_FLOP)
        - weigh(signals.committed, COMMITTED);
    (sum.clamp(0.0, 1.0) * 100.0).round() / 100.0
}

/// The iterations after the last one that made progress; the newest is always among them.
fn since_progress(history: &[IterationRecord]) -> &[IterationRecord] {
    let before_newest = &history[..history.len() - 1];
    let from = before_newest.iter().rposition(progressed).map_or(0, |at| at + 1);
    &history[from..]
}

fn same_failure(history: &[IterationRecord]) -> bool {
    let window = &history[history.len().saturating_sub(WINDOW)..];
    let Some(newest) = window.last() else { return false };
    newest.failures.iter().any(|failure| {
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

/// A file whose last four states are A B A B.
fn flip_flop(history: &[IterationRecord]) -> bool {
    let paths: BTreeSet<&str> = history
        .iter()
        .flat_map(|record| &record.files)
        .map(|file| file.path.as_str())
        .collect();
    paths.into_iter().any(|path| {
        let states: Vec<_> = history
            .iter()
            .filter_map(|record| record.files.iter().find(|file| file.path == path))
            .map(|file| &file.content)
            .collect();
        match states[..] {
            [.., a, b, c, d] => a == c && b == d && a != b,
            _ => false,
        }
    })
}

fn tests_pass_now(history: &[IterationRecord]) -> bool {
    let mut ran = history.iter().rev().filter_map(|record| record.tests.as_ref());
    let newest_ran = history.last().is_some_and(|record| record.tests.is_some());
    match (ran.next(), ran.next()) {
        (Some(now), Some(before)) => newest_ran && now.passed() && !before.passed(),
        _ => false,
    }
}
