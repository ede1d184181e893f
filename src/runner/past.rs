//! What is known of a run before anybody goes on with it: its journal and its last checkpoint, in agreement.

use std::path::Path;

use crate::event::EventKind;
use crate::sandbox::SandboxSpec;
use crate::scm::{Checkpoint, Checkpoints, StateFile};
use crate::state::{
    Journal, JournalCatchUp, JournalEntry, JournalLine, Repaired, RunDir, RunOutcomeKind, repair_log,
    write_atomically,
};

use super::lease;
use super::notebook::Notebook;
use super::report::Reporter;
use super::run::{Ended, end_of};
use super::{RunError, RunOutcome, RunParts};

/// What is known of a run.
pub(super) struct Past {
    /// Its last checkpoint; a new run has none.
    pub(super) checkpoint: Option<Checkpoint>,
    /// Its journal, with everything that the checkpoint says.
    pub(super) journal: Journal,
    /// The last line of the journal that the checkpoint holds.
    pub(super) saved_seq: u64,
    /// What had to be mended, for people.
    pub(super) mended: Vec<String>,
}

impl Past {
    /// Reads and mends it. A run that another machine works on is refused before anything is changed.
    pub(super) async fn read(
        parts: &RunParts,
        dir: &RunDir,
        checkpoints: &Checkpoints,
    ) -> Result<Self, RunError> {
        let checkpoint = checkpoints.load().await?;
        let lines = match &checkpoint {
            Some(checkpoint) => {
                let lines = journal_in(checkpoints, checkpoint).await?;
                lease::respect(parts, dir, (checkpoints, checkpoint), &lines).await?;
                lines
            }
            None => Vec::new(),
        };
        let (mut journal, torn) = Journal::open(&dir.journal_file())?;
        let mut mended: Vec<String> = describe(&dir.journal_file(), torn).into_iter().collect();
        let logs = ["activity.log", "errors.log"].map(|name| dir.ralph_dir().join(name));
        for log in logs.into_iter().chain([dir.events_file()]) {
            mended.extend(describe(&log, repair_log(&log)?));
        }
        let recorded = journal.records().count();
        if checkpoint.is_none() && recorded > 0 {
            return Err(RunError::StateRefGone {
                name: checkpoints.ref_name(),
                recorded,
            });
        }
        let saved_seq = lines.last().map_or(0, |line| line.seq);
        mended.extend(describe_catching_up(journal.catch_up(lines)?));
        Ok(Self {
            checkpoint,
            journal,
            saved_seq,
            mended,
        })
    }

    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        let done = |line: &JournalLine| {
            matches!(
                line.entry,
                JournalEntry::Ended {
                    outcome: RunOutcomeKind::Done,
                    ..
                }
            )
        };
        self.journal.lines().iter().any(done)
    }
}

/// Puts the notebook back to what a checkpoint holds.
pub(super) async fn restore(
    notebook: &mut Notebook,
    checkpoints: &Checkpoints,
    checkpoint: &Checkpoint,
) -> Result<(), RunError> {
    let files = checkpoints.files_in(&checkpoint.commit, "ralph").await?;
    let below = |file: StateFile| Some((file.path.strip_prefix("ralph/")?.to_owned(), file.bytes));
    notebook.restore(files.into_iter().filter_map(below).collect())?;
    Ok(())
}

/// A run that is done, as its last process left it.
pub(super) struct Archive<'a> {
    pub(super) parts: &'a RunParts,
    pub(super) spec: &'a SandboxSpec,
    pub(super) dir: &'a RunDir,
    pub(super) reporter: Reporter,
}

impl Archive<'_> {
    /// Completes what the last process may not have come to after its last checkpoint, and tells the outcome again.
    pub(super) async fn conclude(
        self,
        checkpoints: &Checkpoints,
        checkpoint: &Checkpoint,
        journal: &Journal,
    ) -> Result<RunOutcome, RunError> {
        let mut notebook = Notebook::open(self.dir.ralph_dir(), self.parts.redactor.clone());
        restore(&mut notebook, checkpoints, checkpoint).await?;
        if let Some(task) = checkpoints.file(&checkpoint.commit, "ralph_task.md").await? {
            write_atomically(&self.dir.task_file(), &task)?;
        }
        if let Some(sandbox) = self.parts.provider.reopen(self.spec).await? {
            sandbox.close().await?;
        }
        let reason = "the run was done already".to_owned();
        self.reporter.emit(EventKind::RunEnded {
            outcome: end_of(RunOutcomeKind::Done),
            reason: reason.clone(),
        });
        let ended = Ended {
            kind: RunOutcomeKind::Done,
            reason,
            tip: checkpoint.tip.clone(),
            hourly: self.parts.provider.hourly_cost(self.spec),
        };
        Ok(ended.outcome(self.dir.facts(), journal.lines(), self.parts.clock.now()))
    }
}

async fn journal_in(
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

fn describe(path: &Path, repaired: Repaired) -> Option<String> {
    match repaired {
        Repaired::Nothing => None,
        Repaired::TornLine(bytes) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Some(format!("{name}: removed a torn last line of {bytes} bytes"))
        }
    }
}

fn describe_catching_up(caught_up: JournalCatchUp) -> Option<String> {
    match caught_up {
        JournalCatchUp::Nothing => None,
        JournalCatchUp::Lines(_) => Some("the journal caught up with the checkpoint".to_owned()),
        JournalCatchUp::Parted { after } => Some(format!(
            "the journal had parted from the checkpoint after line {after}; the checkpoint holds"
        )),
    }
}
