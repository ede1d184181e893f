//! What follows from an iteration: its loop score, the next step of the ladder, or the end of the run.

use std::collections::BTreeSet;

use crate::agent::AgentConclusion;
use crate::scm::Diff;
use crate::state::{CommandFailure, FileState, IterationRecord, IterationVerdict, LoopScore, Rung};
use crate::task::{CheckboxId, Task};
use crate::usage::{Tokens, Usd};

use super::agent_work::AgentWork;
use super::collect::Collected;
use super::evidence::Verified;
use super::gutter;
use super::ladder::{LadderDecision, history, next_rung};
use super::progress::RunProgress;
use super::settings::RunSettings;

/// What is to be done before an iteration is recorded. The verdict itself is in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing.
    Record,
    /// Ask the doctor.
    Consult,
    /// Take this step of the ladder.
    Climb(Rung),
}

/// The record of an iteration before it is judged.
pub(super) fn unjudged(
    number: u32,
    profile: &str,
    work: &AgentWork,
    collected: &Collected,
) -> IterationRecord {
    let files = collected.diff.files.iter();
    IterationRecord {
        iteration: number,
        tip: collected.snapshot.tip.clone(),
        tree: collected.snapshot.tree.clone(),
        next_profile: profile.to_owned(),
        profile: profile.to_owned(),
        summary: work.outcome.summary.clone(),
        ending: ending_word(&work.outcome.conclusion).to_owned(),
        failures: work.actions.failures.clone(),
        changed_lines: changed_lines(&collected.diff),
        files: files
            .map(|file| FileState {
                path: file.path.to_string(),
                content: file.after.clone(),
            })
            .collect(),
        new_work_committed: collected.new_work_committed,
        tests: None,
        ticked: Vec::new(),
        newly_ticked: Vec::new(),
        evidence: Vec::new(),
        verdict: IterationVerdict::GoOn,
        score: LoopScore::default(),
        rung: None,
        tokens: Tokens::default(),
        cost: Usd::ZERO,
        milliseconds: 0,
    }
}

/// Adds to the record what the checks showed, and the loop score that follows.
pub(super) fn judge(
    record: &mut IterationRecord,
    verified: &Verified,
    task: &Task,
    progress: &RunProgress<'_>,
    settings: &RunSettings,
) {
    let names = |ids: &BTreeSet<CheckboxId>| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    let tests = &task.frontmatter.test_command;
    let checks = &verified.evidence.checks;
    record.failures.extend(verified.evidence.failures.iter().cloned());
    record.tests = checks.iter().rfind(|check| &check.command == tests).cloned();
    if record.tests.is_none() {
        // The tests did not run because nothing changed: they still fail if they failed before.
        record.failures.extend(last_test_failure(tests, progress));
    }
    record.failures.sort();
    record.failures.dedup();
    record.ticked = names(&verified.ticked);
    record.newly_ticked = names(&verified.ticked.difference(&progress.ticked).cloned().collect());
    let on_commit = checks.iter().filter(|check| check.commit.is_some());
    record.evidence = on_commit.cloned().collect();
    if verified.complete {
        record.verdict = IterationVerdict::Complete;
    }
    let mut history = history(progress.journal.lines());
    history.push(record.clone());
    record.score = gutter::score(&history, settings.diff_line_threshold);
}

fn last_test_failure(tests: &str, progress: &RunProgress<'_>) -> Option<CommandFailure> {
    let failures = &progress.last_record()?.failures;
    failures.iter().find(|failure| failure.command == tests).cloned()
}

/// Decides how the run goes on, from the score and from what the agent asks for. Sets the verdict in the record.
pub(super) fn decide(
    record: &mut IterationRecord,
    ending: &AgentConclusion,
    progress: &RunProgress<'_>,
    settings: &RunSettings,
) -> Decision {
    if record.verdict == IterationVerdict::Complete {
        return Decision::Record;
    }
    match ending {
        AgentConclusion::StopFailure { reason } => record.fail(format!("the agent gave up: {reason}")),
        AgentConclusion::OverBudget { reason } => record.fail(format!("budget exceeded: {reason}")),
        AgentConclusion::Pause { reason } => record.pause(format!("the agent asks for a person: {reason}")),
        AgentConclusion::Continue
        | AgentConclusion::Rotate { .. }
        | AgentConclusion::StopSuccess { .. }
        | AgentConclusion::Unusable { .. } => {
            return next_decision(record, progress, settings);
        }
    }
    Decision::Record
}

fn next_decision(
    record: &mut IterationRecord,
    progress: &RunProgress<'_>,
    settings: &RunSettings,
) -> Decision {
    let mut history = history(progress.journal.lines());
    history.push(record.clone());
    let rungs = usable_rungs(record, settings);
    match next_rung(&history, &rungs, settings.budget.max_consecutive_gutter) {
        LadderDecision::Continue => {
            let every = settings.doctor.every_iterations;
            match every {
                Some(every) if record.iteration.is_multiple_of(every) => Decision::Consult,
                _ => Decision::Record,
            }
        }
        LadderDecision::Climb(rung) => Decision::Climb(rung),
        LadderDecision::GiveUp => {
            record.fail(
                "the run is going in circles and every step of the ladder was tried (max_consecutive_gutter)"
                    .to_owned(),
            );
            Decision::Record
        }
    }
}

/// The rungs that the configuration allows and that would change something.
fn usable_rungs(record: &IterationRecord, settings: &RunSettings) -> Vec<Rung> {
    let profiles = &settings.profiles;
    let exists = |name: &Option<String>| name.as_ref().is_some_and(|name| profiles.get(name).is_some());
    let usable = |rung: &Rung| match rung {
        Rung::Rotate | Rung::Person => true,
        Rung::Fallback => exists(&profiles.fallback) && profiles.fallback.as_ref() != Some(&record.profile),
        Rung::Doctor => exists(&profiles.doctor),
    };
    settings.ladder.iter().copied().filter(usable).collect()
}

fn ending_word(ending: &AgentConclusion) -> &'static str {
    match ending {
        AgentConclusion::Continue => "continue",
        AgentConclusion::Rotate { .. } => "rotate",
        AgentConclusion::Pause { .. } => "pause",
        AgentConclusion::StopSuccess { .. } => "stop_success",
        AgentConclusion::StopFailure { .. } => "stop_failure",
        AgentConclusion::OverBudget { .. } => "over_budget",
        AgentConclusion::Unusable { .. } => "unusable",
    }
}

/// Lines added and removed. A changed binary file counts as one line.
fn changed_lines(diff: &Diff) -> u64 {
    let lines = diff.files.iter().map(|file| file.lines.as_ref());
    lines
        .map(|lines| lines.map_or(1, |lines| lines.added + lines.removed))
        .sum()
}
