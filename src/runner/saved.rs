//! What is saved of a run, read before it goes on: its journal and its last checkpoint, brought into agreement.

use std::path::Path;

use crate::scm::{self, Checkpoint, Checkpoints};
use crate::state::{
    Inbox, Intervention, InterventionRequest, Journal, JournalLine, RunOutcomeKind, StateError, is_done,
    repair_log, write_atomically,
};
use crate::text::counted;

use super::lease::check_lease;
use super::run::report_end;
use super::run_files::RunFiles;
use super::{RunError, RunInputs, RunOutcome};

/// What is saved of a run.
pub(super) struct SavedRun {
    /// Its last checkpoint; a new run has none.
    pub(super) checkpoint: Option<Checkpoint>,
    /// Its journal, with every line of the checkpoint.
    pub(super) journal: Journal,
    /// The number of the last journal line in the checkpoint.
    pub(super) saved_seq: u64,
    /// What had to be repaired, for people.
    pub(super) repairs: Vec<String>,
}

impl SavedRun {
    /// Reads and repairs it. A run that another host works on is refused before anything is changed.
    pub(super) async fn read(inputs: RunInputs<'_>, checkpoints: &Checkpoints) -> Result<Self, RunError> {
        let dir = inputs.dir;
        let checkpoint = checkpoints.load().await?;
        let lines = match &checkpoint {
            Some(checkpoint) => {
                let lines = journal_in(checkpoints, checkpoint).await?;
                check_lease(inputs, checkpoints, checkpoint, &lines).await?;
                lines
            }
            None => Vec::new(),
        };
        let (mut journal, torn) = Journal::open(&dir.journal_file())?;
        let mut repairs: Vec<String> = describe_torn(&dir.journal_file(), torn).into_iter().collect();
        let logs = ["activity.log", "errors.log"].map(|name| dir.ralph_dir().join(name));
        for log in logs.into_iter().chain([dir.events_file()]) {
            repairs.extend(describe_torn(&log, repair_log(&log)?));
        }
        let recorded = journal.records().count();
        if checkpoint.is_none() && recorded > 0 {
            return Err(RunError::StateRefGone {
                name: checkpoints.ref_name(),
                recorded,
            });
        }
        let saved_seq = lines.last().map_or(0, |line| line.seq);
        repairs.extend(journal.catch_up(lines)?);
        Ok(Self {
            checkpoint,
            journal,
            saved_seq,
            repairs,
        })
    }

    /// The checkpoint of a run that a process has opened. A run that was only queued has one without a journal.
    pub(super) fn begun(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref().filter(|_| self.saved_seq > 0)
    }

    /// Whether the run is done, and no review of its pull request waits in the inbox.
    pub(super) fn is_done(&self, inbox: &Inbox) -> Result<bool, StateError> {
        let is_review = |request: &InterventionRequest| {
            let is_new = !self.journal.has_handled(&request.id);
            is_new && matches!(request.intervention, Intervention::Review(_))
        };
        Ok(is_done(self.journal.lines()) && !inbox.pending()?.iter().any(is_review))
    }

    /// Completes what the last process of a run that is done may have missed after its last checkpoint, and returns the
    /// outcome.
    pub(super) async fn conclude(
        &self,
        inputs: RunInputs<'_>,
        checkpoints: &Checkpoints,
        checkpoint: &Checkpoint,
    ) -> Result<RunOutcome, RunError> {
        let RunInputs { parts, dir, spec, .. } = inputs;
        let mut files = RunFiles::new(dir.ralph_dir(), parts.redactor.clone());
        files.restore_from(checkpoints, checkpoint).await?;
        if let Some(task) = checkpoints.file(&checkpoint.commit, "ralph_task.md").await? {
            write_atomically(&dir.task_file(), &task)?;
        }
        if let Some(sandbox) = parts.provider.reopen(spec).await? {
            sandbox.close().await?;
        }
        scm::release_branch(checkpoints.repository(), &dir.facts().branch).await?;
        let (reason, tip) = ("the run was already done".to_owned(), checkpoint.tip.clone());
        let kind = RunOutcomeKind::Done;
        Ok(report_end(inputs, &self.journal, kind, reason, tip))
    }
}

/// The journal in a checkpoint.
pub(super) async fn journal_in(
    checkpoints: &Checkpoints,
    checkpoint: &Checkpoint,
) -> Result<Vec<JournalLine>, RunError> {
    let segments = checkpoints.files_in(&checkpoint.commit, "journal").await?;
    let text: String = segments
        .iter()
        .map(|file| String::from_utf8_lossy(&file.bytes))
        .collect();
    Ok(Journal::parse(Path::new("journal"), &text)?)
}

fn describe_torn(path: &Path, bytes: Option<u64>) -> Option<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    bytes.map(|bytes| format!("{name}: removed a torn last line of {}", counted(bytes, "byte")))
}
