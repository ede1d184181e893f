//! The pull request: opened once the evidence is complete, and the run is done only when it holds that commit.

use crate::event::EventKind;
use crate::scm::{PullRequest, Readiness};
use crate::state::{IterationRecord, JournalEntry};
use crate::task::{
    CheckboxFact, EvidenceFact, FlagFact, PullRequestFacts, PullRequestText, render_pull_request,
};

use super::error::Halt;
use super::run::Run;

impl Run<'_> {
    /// Opens the pull request for the newest record, whose evidence is complete, and ends the run as done.
    pub(super) async fn publish(&mut self) -> Result<(), Halt> {
        let Some(record) = self.journal.records().next_back().cloned() else {
            return Ok(());
        };
        let facts = self.dir.facts().clone();
        let PullRequestText { title, body } = self.pull_request_text(&record).await?;
        let request = PullRequest {
            branch: facts.branch.clone(),
            base_branch: facts
                .base_branch
                .clone()
                .unwrap_or_else(|| facts.base.to_string()),
            commit: record.tip.clone(),
            ours: self.journal.records().map(|record| record.tip.clone()).collect(),
            title: self.parts.redactor.redact(&title),
            body: self.parts.redactor.redact(&body),
            readiness: if self.task.frontmatter.pr.draft {
                Readiness::Draft
            } else {
                Readiness::Ready
            },
            labels: self.task.frontmatter.pr.labels.clone(),
        };
        let opened = self.parts.forge.open(&request).await?;
        if !self.parts.forge.holds(&request.branch, &request.commit).await? {
            return Err(Halt::paused(format!(
                "the pull request {} does not hold {}",
                opened.location, record.tip
            )));
        }
        let place = format!("iterations/{}/pr_state.json", record.iteration);
        let state = serde_json::json!({
            "branch": facts.branch, "tip": record.tip, "opened": true, "location": opened.location,
        });
        self.notebook.write(&place, &format!("{state:#}\n"))?;
        self.reporter.emit(EventKind::PullRequest {
            location: opened.location.clone(),
            commit: record.tip.to_string(),
        });
        self.note(JournalEntry::PullRequest {
            location: opened.location,
            commit: record.tip,
        })?;
        Err(Halt::End {
            kind: crate::state::RunOutcomeKind::Done,
            reason: "every checkbox is verified, the tests pass and the pull request holds that commit"
                .to_owned(),
        })
    }

    async fn pull_request_text(&self, record: &IterationRecord) -> Result<PullRequestText, Halt> {
        let facts = self.dir.facts();
        let spent = self.ledger();
        let brought = crate::scm::agent_settings(&self.repo, &facts.base).await?;
        let flags = crate::scm::flags_between(&self.repo, &facts.base, &record.tip).await?;
        let cost = if spent.unpriced_calls > 0 {
            "unknown".to_owned()
        } else {
            spent.cost.to_string()
        };
        let facts = PullRequestFacts {
            task_id: self.task.frontmatter.task_id.to_string(),
            title: self.task.title().to_owned(),
            run: facts.id.to_string(),
            branch: facts.branch.clone(),
            base: facts
                .base_branch
                .clone()
                .unwrap_or_else(|| facts.base.to_string()),
            checkboxes: self
                .task
                .checkboxes
                .iter()
                .map(|one| CheckboxFact {
                    id: one.id.to_string(),
                    text: one.text.clone(),
                    checked: self.ticked.contains(&one.id),
                })
                .collect(),
            evidence: record
                .evidence
                .iter()
                .map(|check| EvidenceFact {
                    command: check.command.clone(),
                    exit: check.code,
                    duration_s: check.seconds,
                    commit: check.commit.as_ref().map(ToString::to_string).unwrap_or_default(),
                })
                .collect(),
            iterations: spent.iterations,
            tokens: spent.tokens.total(),
            cost,
            flags: flags
                .into_iter()
                .map(|flag| FlagFact {
                    path: flag.path.to_string(),
                    reason: flag.to_string(),
                })
                .collect(),
            agent_settings: brought.iter().map(ToString::to_string).collect(),
            summary: record.summary.clone(),
        };
        Ok(render_pull_request(&self.task.frontmatter.pr, &facts)?)
    }
}
