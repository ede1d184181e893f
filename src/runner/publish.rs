//! The pull request: opened once the evidence is complete. The run is done only when the forge has that commit.

use crate::event::EventKind;
use crate::scm::PullRequest;
use crate::state::{IterationRecord, JournalEntry, RunOutcomeKind};
use crate::task::{
    CheckboxFact, EvidenceFact, FlagFact, PullRequestFacts, PullRequestText, Task, render_pull_request,
};

use super::RunError;
use super::error::Halt;
use super::progress::RunProgress;
use super::run::Run;
use super::workplace::Workplace;

/// Opens the pull request of the newest record, whose evidence is complete, and ends the run as done.
pub(super) async fn publish(run: &mut Run<'_>) -> Result<(), Halt> {
    let (parts, task, progress) = (run.inputs.parts, &run.task, &mut run.progress);
    let Some(record) = progress.last_record().cloned() else {
        return Ok(());
    };
    let facts = progress.facts();
    let PullRequestText { title, body } = pull_request_text(task, &record, progress, &run.workplace).await?;
    let records = progress.journal.records();
    let request = PullRequest {
        branch: facts.branch.clone(),
        base_branch: base_name(progress),
        commit: record.tip.clone(),
        ours: records.map(|record| record.tip.clone()).collect(),
        title: parts.redactor.redact(&title),
        body: parts.redactor.redact(&body),
        draft: task.frontmatter.pr.draft,
        labels: task.frontmatter.pr.labels.clone(),
    };
    let location = parts.forge.open(&request).await?;
    if !parts.forge.is_at(&request.branch, &request.commit).await? {
        return Err(Halt::paused(format!(
            "the pull request {location} does not contain commit {}",
            record.tip
        )));
    }
    let file = format!("iterations/{}/pr_state.json", record.iteration);
    let state = serde_json::json!({
        "branch": facts.branch, "tip": record.tip, "opened": true, "location": location,
    });
    progress.files.write(&file, &format!("{state:#}\n"))?;
    run.inputs.reporter.emit(EventKind::PullRequest {
        location: location.clone(),
        commit: record.tip.to_string(),
    });
    progress.append(JournalEntry::PullRequest {
        location,
        commit: record.tip,
    })?;
    let reason = "every checkbox is verified, the tests pass and the pull request contains that commit";
    Err(Halt::end(RunOutcomeKind::Done, reason))
}

/// The branch that the pull request is for, or the base commit of a detached HEAD.
fn base_name(progress: &RunProgress<'_>) -> String {
    let facts = progress.facts();
    facts
        .base_branch
        .clone()
        .unwrap_or_else(|| facts.base.to_string())
}

async fn pull_request_text(
    task: &Task,
    record: &IterationRecord,
    progress: &RunProgress<'_>,
    workplace: &Workplace<'_>,
) -> Result<PullRequestText, RunError> {
    let (facts, spent) = (progress.facts(), progress.ledger());
    let agent_settings = crate::scm::agent_settings(&workplace.repo, &facts.base).await?;
    let flags = crate::scm::flags_between(&workplace.repo, &facts.base, &record.tip).await?;
    let cost = if spent.unpriced_calls > 0 {
        "unknown".to_owned()
    } else {
        spent.cost.to_string()
    };
    let checkboxes = task.checkboxes.iter().map(|checkbox| CheckboxFact {
        id: checkbox.id.to_string(),
        text: checkbox.text.clone(),
        checked: progress.ticked.contains(&checkbox.id),
    });
    let evidence = record.evidence.iter().map(|check| EvidenceFact {
        command: check.command.clone(),
        exit: check.code,
        duration_s: check.seconds,
        // EvidenceFact always has a commit: `judge` keeps only such checks.
        commit: check.commit.as_ref().map(ToString::to_string).unwrap_or_default(),
    });
    let flags = flags.into_iter().map(|flag| FlagFact {
        path: flag.path.to_string(),
        reason: flag.to_string(),
    });
    let facts = PullRequestFacts {
        task_id: task.frontmatter.task_id.to_string(),
        title: task.title().to_owned(),
        run: facts.id.to_string(),
        branch: facts.branch.clone(),
        base: base_name(progress),
        checkboxes: checkboxes.collect(),
        evidence: evidence.collect(),
        iterations: spent.iterations,
        tokens: spent.tokens.total(),
        cost,
        flags: flags.collect(),
        agent_settings: agent_settings.iter().map(ToString::to_string).collect(),
        summary: record.summary.clone(),
    };
    Ok(render_pull_request(&task.frontmatter.pr, &facts)?)
}
