//! The files and the record of a finished iteration: for people, for the next prompt, and for the journal.

use std::time::Duration;

use serde_json::json;

use crate::event::EventKind;
use crate::id::ObjectId;
use crate::scm::{PathChange, Snapshot};
use crate::state::{CheckResult, IterationRecord, IterationVerdict, JournalEntry, StateError};

use super::agent_work::AgentWork;
use super::budget::Ledger;
use super::collect::Collected;
use super::error::Halt;
use super::evidence::Evidence;
use super::gutter::score_parts;
use super::progress::LastIteration;
use super::run::Run;
use crate::text::{counted, one_line};

impl Run<'_> {
    /// Writes everything about the iteration that a person may want to read to the run files.
    pub(super) fn write_iteration_files(
        &mut self,
        record: &IterationRecord,
        work: &AgentWork,
        collected: &Collected,
        evidence: &Evidence,
    ) -> Result<(), StateError> {
        let progress = &mut self.progress;
        let number = record.iteration;
        let actions: Vec<String> = work
            .actions
            .lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        let metrics = metrics(record, &progress.ledger());
        let pull_request = json!({ "branch": progress.facts().branch, "tip": record.tip, "opened": false });
        let files = [
            ("response.json", pretty(&json!({ "text": work.response }))),
            ("actions.jsonl", actions.concat()),
            ("git_diff.patch", collected.diff.patch.clone()),
            ("test_output.txt", evidence.output.clone()),
            ("metrics.json", pretty(&metrics)),
            ("pr_state.json", pretty(&pull_request)),
        ];
        for (name, text) in files {
            progress
                .files
                .write(&format!("iterations/{number}/{name}"), &text)?;
        }
        for error in work.actions.errors.iter().chain(&evidence.errors) {
            progress.log_error(number, error)?;
        }
        progress.files.append("progress.md", &progress_line(record))?;
        for line in activity(record, evidence) {
            progress.log_activity(&line)?;
        }
        Ok(())
    }

    /// Records the iteration in the journal and in a checkpoint. Only then has it happened.
    pub(super) async fn record_iteration(
        &mut self,
        record: IterationRecord,
        collected: &Collected,
        evidence: Evidence,
    ) -> Result<(), Halt> {
        let progress = &mut self.progress;
        let file = |name: &str| Some(format!(".ralph/iterations/{}/{name}", record.iteration));
        let before = std::mem::take(&mut progress.last);
        progress.set_last(LastIteration {
            status: status_text(&collected.snapshot),
            diff_summary: collected.diff.summary(),
            diff_file: file("git_diff.patch"),
            tests_file: if evidence.checks.is_empty() {
                before.tests_file
            } else {
                file("test_output.txt")
            },
            tested_tree: tested_tree(&record, &collected.snapshot).or(before.tested_tree),
        })?;
        (progress.tip, progress.tree) = (record.tip.clone(), record.tree.clone());
        progress.ticked = evidence.ticked;
        let (events, verdict) = (
            [scored_event(&record), ended_event(&record)],
            record.verdict.clone(),
        );
        progress
            .checkpoint(Some(JournalEntry::Recorded(Box::new(record))))
            .await?;
        self.workplace.show_task(progress).await?;
        for event in events {
            self.inputs.reporter.emit(event);
        }
        self.progress.warn_about_budget()?;
        Halt::from_verdict(verdict)
    }
}

/// The tree the tests ran on. Evidence runs on the commit, whose tree is that of the clone only without uncommitted work.
fn tested_tree(record: &IterationRecord, snapshot: &Snapshot) -> Option<ObjectId> {
    let tests = record.tests.as_ref()?;
    (tests.commit.is_none() || snapshot.dirty.is_empty()).then(|| record.tree.clone())
}

/// The commands, the score and the decision of an iteration, for `activity.log`.
fn activity(record: &IterationRecord, evidence: &Evidence) -> Vec<String> {
    let mut lines: Vec<String> = evidence.checks.iter().map(check_line).collect();
    let parts = score_parts(record.score.signals).into_iter();
    let parts: Vec<String> = parts
        .map(|part| format!("{} {:+}", part.signal, part.points))
        .collect();
    let gutter = if record.score.gutter { " GUTTER" } else { "" };
    lines.push(format!(
        "loop score {:.2}{gutter}: {}",
        record.score.total,
        if parts.is_empty() {
            "no signals".to_owned()
        } else {
            parts.join(", ")
        }
    ));
    lines.push(match &record.verdict {
        IterationVerdict::GoOn => format!("decision: go on with {}", record.next_profile),
        IterationVerdict::Complete => "decision: complete".to_owned(),
        IterationVerdict::Failed { reason } => format!("decision: failed: {reason}"),
        IterationVerdict::Paused { reason } => format!("decision: paused: {reason}"),
    });
    lines.push(format!(
        "iteration {} ended: {}; {:.1} s, {}, {}",
        record.iteration,
        record.ending,
        Duration::from_millis(record.milliseconds).as_secs_f64(),
        counted(record.tokens.total(), "token"),
        record.cost
    ));
    lines
}

fn check_line(check: &CheckResult) -> String {
    let purpose = if check.commit.is_some() {
        "evidence"
    } else {
        "feedback"
    };
    format!(
        "{purpose}: `{}`: exit {}, {} s",
        check.command, check.code, check.seconds
    )
}

fn scored_event(record: &IterationRecord) -> EventKind {
    EventKind::LoopScored {
        total: record.score.total,
        gutter: record.score.gutter,
        parts: score_parts(record.score.signals),
    }
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
        "uncommitted": record.uncommitted,
    })
}

fn change_word(change: PathChange) -> &'static str {
    match change {
        PathChange::Added => "added",
        PathChange::Modified => "modified",
        PathChange::Deleted => "deleted",
        PathChange::Repository => "repository of its own (not handed back)",
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

/// JSON with indentation, for people.
fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
