//! What is written down of an iteration: for people, for the next prompt, and as the record that makes it count.

use std::time::Duration;

use serde_json::json;

use crate::event::EventKind;
use crate::id::ObjectId;
use crate::scm::{Change, Snapshot};
use crate::state::{IterationRecord, IterationVerdict, JournalEntry, StateError};

use super::budget::Ledger;
use super::error::Halt;
use super::evidence::Verified;
use super::iteration::Collected;
use super::run::{Run, SEEN_FILE, Seen, to_json};
use super::work::Work;
use crate::text::one_line;

/// An iteration that is over but not recorded yet.
pub(super) struct Finished {
    pub(super) record: IterationRecord,
    pub(super) work: Work,
    pub(super) collected: Collected,
    pub(super) verified: Verified,
}

impl Run<'_> {
    /// Everything about the iteration that a person may want to read.
    pub(super) fn write_down(&mut self, finished: &Finished) -> Result<(), Halt> {
        let Finished {
            record,
            work,
            collected,
            verified,
        } = finished;
        let number = record.iteration;
        let place = format!("iterations/{number}");
        let actions: Vec<String> = work
            .performed
            .log
            .iter()
            .map(|action| format!("{action}\n"))
            .collect();
        self.notebook.write(
            &format!("{place}/response.json"),
            &pretty(&json!({ "text": work.response })),
        )?;
        self.notebook
            .write(&format!("{place}/actions.jsonl"), &actions.concat())?;
        self.notebook
            .write(&format!("{place}/git_diff.patch"), &collected.diff.patch)?;
        self.notebook
            .write(&format!("{place}/test_output.txt"), &verified.evidence.output)?;
        self.notebook.write(
            &format!("{place}/metrics.json"),
            &pretty(&metrics(record, &self.ledger())),
        )?;
        let pull = json!({ "branch": self.dir.facts().branch, "tip": record.tip, "opened": false });
        self.notebook
            .write(&format!("{place}/pr_state.json"), &pretty(&pull))?;
        for error in work.performed.errors.iter().chain(&verified.evidence.errors) {
            self.log_error(number, error)?;
        }
        self.notebook.append("progress.md", &progress_line(record))?;
        let gutter = if record.score.gutter { " GUTTER" } else { "" };
        let signals = serde_json::to_string(&record.score.signals).unwrap_or_default();
        self.log_activity(&format!(
            "iteration {number} ended: {}; loop score {:.2}{gutter}; signals {signals}",
            record.ending, record.score.total
        ))?;
        Ok(())
    }

    /// Records the iteration: from here on it has happened.
    pub(super) async fn seal(&mut self, finished: Finished) -> Result<(), Halt> {
        let Finished {
            record,
            collected,
            verified,
            ..
        } = finished;
        let number = record.iteration;
        let file = |name: &str| Some(format!(".ralph/iterations/{number}/{name}"));
        let before = std::mem::take(&mut self.seen);
        self.seen = Seen {
            status: status_text(&collected.snapshot),
            diff_summary: collected.diff.summary(),
            diff_file: file("git_diff.patch"),
            tests_file: if verified.evidence.checks.is_empty() {
                before.tests_file
            } else {
                file("test_output.txt")
            },
            tested_tree: tested_tree(&record, &collected.snapshot).or(before.tested_tree),
        };
        self.notebook
            .write(SEEN_FILE, &String::from_utf8_lossy(&to_json(&self.seen)))?;
        (self.tip, self.tree) = (record.tip.clone(), record.tree.clone());
        self.ticked = verified.ticked;
        let ended = ended_event(&record);
        let verdict = record.verdict.clone();
        self.checkpoint(Some(JournalEntry::Recorded(Box::new(record))))
            .await?;
        self.show_task().await?;
        self.reporter.emit(ended);
        match verdict {
            IterationVerdict::GoOn | IterationVerdict::Complete => Ok(()),
            IterationVerdict::Failed { reason } => Err(Halt::failed(reason)),
            IterationVerdict::Paused { reason } => Err(Halt::paused(reason)),
        }
    }

    /// Adds an entry to `errors.log`.
    pub(super) fn log_error(&mut self, number: u32, text: &str) -> Result<(), StateError> {
        self.notebook.append(
            "errors.log",
            &format!("[iteration {number}] {}\n", text.trim_end()),
        )
    }
}

/// The tree the tests ran on: the commit's in evidence, which is the clone's only when nothing is uncommitted.
fn tested_tree(record: &IterationRecord, snapshot: &Snapshot) -> Option<ObjectId> {
    let tests = record.tests.as_ref()?;
    (tests.commit.is_none() || snapshot.dirty.is_empty()).then(|| record.tree.clone())
}

fn ended_event(record: &IterationRecord) -> EventKind {
    EventKind::IterationEnded {
        summary: record.summary.clone(),
        loop_score: record.score.total,
        gutter: record.score.gutter,
        changed_lines: record.changed_lines,
        seconds: Duration::from_millis(record.milliseconds).as_secs_f64(),
    }
}

fn progress_line(record: &IterationRecord) -> String {
    let tests = match &record.tests {
        Some(check) if check.passed() => "; tests pass",
        Some(_) => "; tests fail",
        None => "",
    };
    let ticked = match record.newly_ticked.as_slice() {
        [] => String::new(),
        boxes => format!("; ticked {}", boxes.join(", ")),
    };
    format!(
        "- iteration {}: {}{tests}{ticked}\n",
        record.iteration,
        one_line(&record.summary)
    )
}

fn metrics(record: &IterationRecord, spent: &Ledger) -> serde_json::Value {
    json!({
        "iteration": record.iteration,
        "profile": record.profile,
        "milliseconds": record.milliseconds,
        "tokens": record.tokens,
        "cost_usd": record.cost.dollars(),
        "unpriced_calls_total": spent.unpriced_calls,
        "changed_lines": record.changed_lines,
        "loop_score": record.score.total,
        "gutter": record.score.gutter,
        "signals": record.score.signals,
        "failures": record.failures,
        "rung": record.rung,
        "tests": record.tests,
        "evidence": record.evidence,
        "ticked": record.ticked,
    })
}

fn change_word(change: Change) -> &'static str {
    match change {
        Change::Added => "added",
        Change::Modified => "modified",
        Change::Deleted => "deleted",
        Change::Repository => "repository of its own (not taken over)",
    }
}

fn status_text(snapshot: &Snapshot) -> String {
    let lines: Vec<String> = snapshot
        .dirty
        .iter()
        .map(|dirty| format!("{} {}", change_word(dirty.change), dirty.path))
        .collect();
    lines.join("\n")
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
