//! The CI of the forge: waited for before a run is done. What fails there is the input of the next iteration.

use std::fmt::Write;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep};

use crate::event::EventKind;
use crate::id::ObjectId;
use crate::scm::{CiFailure, CiReport};
use crate::state::{JournalEntry, JournalLine};
use crate::text::{counted, error_chain, first_bytes};

use super::RunInputs;
use super::budget::since_rest;
use super::error::Halt;
use super::interventions::until_stopped;
use super::run::Run;
use super::settings::CiRules;

/// How often the agent gets to mend what CI found.
const ROUNDS: usize = 2;
/// How much of CI's output the agent gets, in bytes.
const MAX_OUTPUT: usize = 16 * 1024;
/// After so many failed questions in a row the forge counts as out of order.
const MAX_ERRORS: u32 = 5;

/// What CI says about a commit that is otherwise done.
pub(super) enum CiVerdict {
    /// It does not object, for this reason.
    Passed(String),
    /// It failed: the work goes on.
    Again,
    /// It failed, and the agent cannot mend it: the run waits for a person.
    Person { reason: String, checks: Vec<String> },
}

/// Waits until CI has decided about the commit of the pull request.
pub(super) async fn await_ci(
    run: &mut Run<'_>,
    commit: &ObjectId,
    rules: CiRules,
) -> Result<CiVerdict, Halt> {
    let (inputs, started) = (run.inputs, Instant::now());
    let now = inputs.parts.clock.now();
    let limit = SignedDuration::try_from(rules.limit).unwrap_or(SignedDuration::MAX);
    let until = now.checked_add(limit).unwrap_or(now);
    let reason = format!("CI of commit {}", commit.short());
    run.progress
        .log_activity(&format!("waiting until {until}: {reason}"))?;
    inputs.reporter.emit(EventKind::Waiting { reason, until });
    // Renews the lease, so that no other host takes the run over meanwhile.
    run.progress.waiting_until = Some(until);
    run.progress.checkpoint(None).await?;
    let settled = tokio::select! {
        settled = settle(inputs, commit, rules) => settled,
        halt = until_stopped(inputs) => Err(halt),
    };
    run.progress.waiting_until = None;
    let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    run.progress.append(JournalEntry::AwaitedCi { milliseconds })?;
    let report = settled?;
    if report.failed.is_empty() {
        return Ok(CiVerdict::Passed(match report.passed.len() {
            0 => format!("CI has no check of it after {} s", rules.settle.as_secs()),
            passed => format!("{} of CI passed", counted(passed, "check")),
        }));
    }
    send_back(run, commit, &report.failed)
}

/// Asks until no check is pending, and checks had time to appear.
async fn settle(inputs: RunInputs<'_>, commit: &ObjectId, rules: CiRules) -> Result<CiReport, Halt> {
    let (started, mut errors) = (Instant::now(), 0);
    let mut pending = Vec::new();
    while started.elapsed() < rules.limit {
        match inputs.parts.forge.ci(commit).await {
            Ok(report) => {
                errors = 0;
                if report.pending.is_empty() && started.elapsed() >= rules.settle {
                    return Ok(report);
                }
                pending = report.pending;
            }
            Err(error) if errors < MAX_ERRORS => {
                errors += 1;
                tracing::warn!(error = error_chain(&error), "cannot ask for the state of CI");
            }
            Err(error) => return Err(error.into()),
        }
        sleep(rules.poll).await;
    }
    Err(Halt::paused(format!(
        "CI of commit {} did not end within {}; pending: {}; `ralph resume` waits again",
        commit.short(),
        counted(rules.limit.as_secs() / 60, "minute"),
        pending.join(", "),
    )))
}

/// Whether CI failed on this commit.
pub(super) fn has_failed(lines: &[JournalLine], commit: &ObjectId) -> bool {
    failed_commits(lines).any(|failed| failed == commit)
}

fn failed_commits(lines: &[JournalLine]) -> impl Iterator<Item = &ObjectId> {
    lines.iter().filter_map(|line| match &line.entry {
        JournalEntry::CiFailed { commit, .. } => Some(commit),
        _ => None,
    })
}

/// Makes the failures the input of the next iteration. A person is needed when the agent had its rounds, and when it made no
/// commit: CI would say the same again.
fn send_back(run: &mut Run<'_>, commit: &ObjectId, failed: &[CiFailure]) -> Result<CiVerdict, Halt> {
    let progress = &mut run.progress;
    let checks: Vec<String> = failed.iter().map(|failure| failure.name.clone()).collect();
    // A person who resumes the run gives the agent new rounds.
    let since_rest = since_rest(progress.journal.lines());
    let rounds = failed_commits(since_rest).count();
    let is_unchanged = has_failed(since_rest, commit);
    let mut text = format!(
        "CI failed on commit {}, where the commands of the task pass:\n",
        commit.short()
    );
    for failure in failed {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} ({}):\n{}",
            failure.name, failure.conclusion, failure.log
        );
    }
    let text = run.inputs.parts.redactor.redact(&text);
    progress.log_error(progress.iterations(), first_bytes(&text, MAX_OUTPUT))?;
    let named = checks.join(", ");
    let problem = if is_unchanged {
        Some("and the agent reports the task as done without another commit".to_owned())
    } else {
        (rounds >= ROUNDS).then(|| format!("after {ROUNDS} attempts to mend it"))
    };
    if let Some(problem) = problem {
        let reason = format!(
            "CI failed on commit {} {problem}: {named}; `ralph resume` asks CI again, and gives the agent {ROUNDS} more \
             attempts",
            commit.short()
        );
        return Ok(CiVerdict::Person { reason, checks });
    }
    progress.log_activity(&format!("CI failed on {}: {named}", commit.short()))?;
    progress.append(JournalEntry::CiFailed {
        commit: commit.clone(),
        checks: checks.clone(),
    })?;
    let commit = commit.to_string();
    run.inputs.reporter.emit(EventKind::CiFailed { commit, checks });
    Ok(CiVerdict::Again)
}
