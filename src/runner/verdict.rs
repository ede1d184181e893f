//! What follows from an iteration: its loop score, the next step of the ladder, or the end of the run.

use crate::agent::AgentConclusion;
use crate::model::Profile;
use crate::scm::Diff;
use crate::state::{CommandFailure, FileState, IterationRecord, IterationVerdict, LoopScore, Rung};
use crate::usage::{Tokens, Usd};

use super::agent_work::AgentWork;
use super::collect::Collected;
use super::evidence::Evidence;
use super::gutter::{self, BaseFailures};
use super::iteration::next_profile;
use super::ladder::{LadderDecision, history, next_rung};
use super::progress::RunProgress;
use super::run::Run;
use super::settings::RunSettings;

impl Run<'_> {
    /// The record of an iteration, with its loop score.
    pub(super) fn judge(
        &self,
        number: u32,
        profile: &Profile,
        work: &AgentWork,
        collected: &Collected,
        evidence: &Evidence,
    ) -> IterationRecord {
        let test_command = &self.task.frontmatter.test_command;
        let checks = evidence.checks.iter();
        let tests = checks.clone().rfind(|check| &check.command == test_command);
        let mut failures = [&work.actions.failures[..], &evidence.failures[..]].concat();
        if tests.is_none() {
            // The tests did not run because nothing changed: they still fail if they failed before.
            failures.extend(last_test_failure(test_command, &self.progress));
        }
        failures.sort();
        failures.dedup();
        let files = collected.diff.files.iter().map(|file| FileState {
            path: file.path.to_string(),
            content: file.after.clone(),
        });
        let on_commit = checks.filter(|check| check.commit.is_some());
        let newly_ticked = evidence.ticked.difference(&self.progress.ticked);
        let agent = self.inputs.parts.agents.for_profile(&profile.name);
        let lasting = next_profile(&self.progress, false).ok();
        let mut record = IterationRecord {
            iteration: number,
            tip: collected.snapshot.tip.clone(),
            tree: collected.snapshot.tree.clone(),
            next_profile: lasting.unwrap_or(profile).name.clone(),
            profile: profile.name.clone(),
            agent: agent.name().to_owned(),
            model: self.model_name(work, profile),
            summary: work.outcome.summary.clone(),
            ending: ending_word(&work.outcome.conclusion).to_owned(),
            failures,
            changed_lines: changed_lines(&collected.diff),
            files: files.collect(),
            new_work_committed: collected.new_work_committed,
            planned: has_planned(work, collected, evidence),
            tests: tests.cloned(),
            ticked: evidence.ticked.iter().map(ToString::to_string).collect(),
            newly_ticked: newly_ticked.map(ToString::to_string).collect(),
            evidence: on_commit.cloned().collect(),
            evidence_apart: evidence.apart,
            evidence_shares: evidence.shared.clone(),
            flaky: evidence.flaky.clone(),
            weakened: evidence.weakened.clone(),
            uncommitted: collected.uncommitted.clone(),
            verdict: match &evidence.pause {
                Some(reason) => IterationVerdict::Paused {
                    reason: reason.clone(),
                },
                None if evidence.complete => IterationVerdict::Complete,
                None => IterationVerdict::GoOn,
            },
            score: LoopScore::default(),
            rung: None,
            tokens: Tokens::default(),
            cost: Usd::ZERO,
            milliseconds: 0,
        };
        let mut history = history(self.progress.journal.lines());
        history.push(record.clone());
        let mut base = BaseFailures::from_history(&history, &self.progress.base_tree);
        base.extend(self.base_failures());
        record.score = gutter::score(&history, &base, self.inputs.settings.diff_line_threshold);
        record
    }

    /// The model that worked, for people: only the runner knows which one answered its own calls.
    fn model_name(&self, work: &AgentWork, profile: &Profile) -> String {
        let parts = self.inputs.parts;
        let name = if work.called_model {
            parts.model.name(profile)
        } else {
            parts.agents.for_profile(&profile.name).model_name(profile)
        };
        name.to_owned()
    }
}

/// Whether the agent only read, thought or took notes. One that reports checkboxes, for which evidence ran, says that it is
/// past that.
fn has_planned(work: &AgentWork, collected: &Collected, evidence: &Evidence) -> bool {
    let has_reported = evidence.checks.iter().any(|check| check.commit.is_some());
    let actions = &work.actions;
    let has_acted = actions.reported > 0 || actions.lines.len() > actions.failures.len();
    let is_unchanged = collected.diff.files.is_empty() && !collected.has_empty_commits;
    !has_reported && is_unchanged && (work.has_notes || has_acted)
}

fn last_test_failure(tests: &str, progress: &RunProgress<'_>) -> Option<CommandFailure> {
    let failures = &progress.last_record()?.failures;
    failures.iter().find(|failure| failure.command == tests).cloned()
}

/// Decides how the run goes on, from the score and from what the agent asks for. A verdict is set in the record.
pub(super) fn decide(
    record: &mut IterationRecord,
    ending: &AgentConclusion,
    progress: &RunProgress<'_>,
) -> LadderDecision {
    if record.verdict != IterationVerdict::GoOn {
        return LadderDecision::Continue;
    }
    match ending {
        AgentConclusion::StopFailure { reason } => record.fail(format!("the agent gave up: {reason}")),
        AgentConclusion::OverBudget { reason } => record.fail(format!("budget exceeded: {reason}")),
        AgentConclusion::Pause { reason } => record.pause(format!("the agent asks for a person: {reason}")),
        AgentConclusion::Continue
        | AgentConclusion::Rotate { .. }
        | AgentConclusion::StopSuccess { .. }
        | AgentConclusion::Unusable { .. } => return next_decision(record, progress),
    }
    LadderDecision::Continue
}

fn next_decision(record: &IterationRecord, progress: &RunProgress<'_>) -> LadderDecision {
    let settings = progress.inputs.settings;
    let mut history = history(progress.journal.lines());
    history.push(record.clone());
    let rungs = usable_rungs(record, settings);
    let every = settings.doctor.every_iterations;
    let is_due = every.is_some_and(|every| record.iteration.is_multiple_of(every));
    match next_rung(&history, &rungs, progress.budget.max_consecutive_gutter) {
        LadderDecision::Continue if is_due => LadderDecision::Consult,
        decision => decision,
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
        .map(|lines| lines.map_or(1, |lines| lines.added.saturating_add(lines.removed)))
        .fold(0, u64::saturating_add)
}
