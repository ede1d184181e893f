//! The pull request: opened once the evidence is complete. The run is done only when the forge has that commit.

use crate::event::EventKind;
use crate::scm::PullRequest;
use crate::state::{JournalEntry, RunOutcomeKind};
use crate::task::PullRequestText;

use super::error::Halt;
use super::pull_request::{base_name, pull_request_text};
use super::run::Run;

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
    progress.log_activity(&format!("pull request: {location} holds {}", record.tip))?;
    run.inputs.reporter.emit(EventKind::PullRequest {
        location: location.clone(),
        commit: record.tip.to_string(),
    });
    progress.append(JournalEntry::PullRequest {
        location,
        commit: record.tip,
    })?;
    let mut reason =
        "every checkbox is verified, the tests pass and the pull request contains that commit".to_owned();
    if !record.evidence_shares.is_empty() {
        let shared = record.evidence_shares.join("; ");
        reason = format!("{reason}. Evidence shared with the agent: {shared}");
    }
    Err(Halt::end(RunOutcomeKind::Done, reason))
}
