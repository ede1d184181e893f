//! What follows from an iteration: its score, the ladder, the end.

use std::collections::BTreeSet;

use crate::agent::AgentConclusion;
use crate::event::EventKind;
use crate::scm::Diff;
use crate::state::{FileState, IterationRecord, IterationVerdict, LoopScore, Rung};
use crate::task::CheckboxId;
use crate::text::one_line;
use crate::usage::{Tokens, Usd};

use super::doctor::Consulted;
use super::error::Halt;
use super::evidence::Verified;
use super::gutter;
use super::iteration::Collected;
use super::ladder::{Next, Standing};
use super::run::Run;
use super::work::Work;

impl Run<'_> {
    /// What the checks showed, and the score that follows.
    pub(super) fn judge(&self, record: &mut IterationRecord, verified: &Verified) {
        let names = |boxes: &BTreeSet<CheckboxId>| boxes.iter().map(ToString::to_string).collect::<Vec<_>>();
        let tests = &self.task.frontmatter.test_command;
        record.failures.extend(verified.evidence.failures.iter().cloned());
        record.tests = verified
            .evidence
            .checks
            .iter()
            .rfind(|check| &check.command == tests)
            .cloned();
        if record.tests.is_none() {
            // Nothing new to test: a failure that stood before still stands.
            record.failures.extend(self.standing_test_failure());
        }
        record.failures.sort();
        record.failures.dedup();
        record.ticked = names(&verified.ticked);
        record.newly_ticked = names(&verified.ticked.difference(&self.ticked).cloned().collect());
        record.evidence = verified
            .evidence
            .checks
            .iter()
            .filter(|check| check.commit.is_some())
            .cloned()
            .collect();
        if verified.complete {
            record.verdict = IterationVerdict::Complete;
        }
        let mut history = Standing::from_journal(self.journal.lines()).history;
        history.push(record.clone());
        record.score = gutter::score(&history, self.settings.diff_line_threshold);
    }

    fn standing_test_failure(&self) -> Option<crate::state::CommandFailure> {
        let last = self.journal.records().next_back()?;
        last.failures
            .iter()
            .find(|failure| failure.command == self.task.frontmatter.test_command)
            .cloned()
    }

    /// What follows from the score and from what the agent asks for. A rung is climbed before the iteration is
    /// recorded, so that a crash cannot leave it half done.
    pub(super) async fn decide(&mut self, record: &mut IterationRecord, work: &Work) -> Result<(), Halt> {
        match &work.outcome.conclusion {
            _ if record.verdict == IterationVerdict::Complete => return Ok(()),
            AgentConclusion::StopFailure { reason } => {
                record.verdict = IterationVerdict::Failed {
                    reason: format!("the agent gave up: {reason}"),
                }
            }
            AgentConclusion::OverBudget { reason } => {
                record.verdict = IterationVerdict::Failed {
                    reason: format!("budget exceeded: {reason}"),
                }
            }
            AgentConclusion::Pause { reason } => {
                record.verdict = IterationVerdict::Paused {
                    reason: format!("the agent asks for a person: {reason}"),
                }
            }
            AgentConclusion::Continue
            | AgentConclusion::Rotate { .. }
            | AgentConclusion::StopSuccess { .. }
            | AgentConclusion::Unusable { .. } => {
                self.next_step(record).await?;
            }
        }
        Ok(())
    }

    async fn next_step(&mut self, record: &mut IterationRecord) -> Result<(), Halt> {
        let mut standing = Standing::from_journal(self.journal.lines());
        standing.history.push(record.clone());
        let due = self
            .settings
            .doctor
            .every_iterations
            .is_some_and(|every| record.iteration.is_multiple_of(every));
        match standing.next(&self.rungs(record), self.settings.budget.max_consecutive_gutter) {
            Next::Continue if due => self.diagnose(record).await.map(|_consulted| ()),
            Next::Continue => Ok(()),
            Next::Climb(rung) => self.climb(rung, record).await,
            Next::GiveUp => {
                let reason =
                    "it goes in circles and every rung of the ladder was tried (max_consecutive_gutter)";
                record.verdict = IterationVerdict::Failed {
                    reason: reason.to_owned(),
                };
                Ok(())
            }
        }
    }

    /// The rungs that can be climbed at all.
    fn rungs(&self, record: &IterationRecord) -> Vec<Rung> {
        let profiles = &self.settings.profiles;
        let usable = |name: &Option<String>| name.as_ref().is_some_and(|name| profiles.get(name).is_some());
        let can = |rung: &Rung| match rung {
            Rung::Rotate | Rung::Person => true,
            Rung::Fallback => {
                usable(&profiles.fallback) && profiles.fallback.as_ref() != Some(&record.profile)
            }
            Rung::Doctor => usable(&profiles.doctor),
        };
        self.settings.ladder.iter().copied().filter(can).collect()
    }

    async fn climb(&mut self, rung: Rung, record: &mut IterationRecord) -> Result<(), Halt> {
        record.rung = Some(rung);
        let detail = match rung {
            Rung::Rotate => {
                let sign = sign_for(record);
                self.notebook.append("guardrails.md", &format!("\n{sign}\n"))?;
                sign
            }
            Rung::Fallback => {
                record.next_profile = self.settings.profiles.fallback.clone().unwrap_or_default();
                format!("going on with profile {}", record.next_profile)
            }
            Rung::Doctor => {
                let came_of_it = match self.diagnose(record).await? {
                    Consulted::Diagnosed => "see .ralph/diagnostics.md",
                    Consulted::Unusable => "its answer could not be used",
                    Consulted::NotAtAll => "it gave no answer",
                };
                came_of_it.to_owned()
            }
            Rung::Person => {
                let reason =
                    "it goes in circles: a person should look (`ralph note`, then `ralph resume`)".to_owned();
                record.verdict = IterationVerdict::Paused { reason };
                "waiting for a person".to_owned()
            }
        };
        let rung = rung.name().to_owned();
        self.log_activity(&format!("ladder: {rung}: {detail}"))?;
        self.reporter.emit(EventKind::Ladder { rung, detail });
        Ok(())
    }
}

/// What is known of an iteration before it is judged.
pub(super) fn unjudged(number: u32, profile: &str, work: &Work, collected: &Collected) -> IterationRecord {
    let files = collected.diff.files.iter();
    IterationRecord {
        iteration: number,
        tip: collected.snapshot.tip.clone(),
        tree: collected.snapshot.tree.clone(),
        next_profile: profile.to_owned(),
        profile: profile.to_owned(),
        summary: work.outcome.summary.clone(),
        ending: ending_word(&work.outcome.conclusion).to_owned(),
        failures: work.performed.failures.clone(),
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

fn sign_for(record: &IterationRecord) -> String {
    let repeated = record
        .failures
        .first()
        .map_or("the same step".to_owned(), |failure| {
            format!(
                "`{}` failing with exit {}",
                one_line(&failure.command),
                failure.code
            )
        });
    format!(
        "### Sign after iteration {}\n- Seen: {repeated}, again and again.\n- Instead: do not repeat it; read the error, question the approach and take a different one.",
        record.iteration
    )
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

/// Lines added and removed; a binary file that changed counts as one.
fn changed_lines(diff: &Diff) -> u64 {
    let of =
        |file: &crate::scm::FileChange| file.lines.as_ref().map_or(1, |lines| lines.added + lines.removed);
    diff.files.iter().map(of).sum()
}
