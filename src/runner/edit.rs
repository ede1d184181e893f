//! Edits of the task and retries in the middle of a run.

use std::collections::BTreeSet;

use crate::state::{Intervention, IterationRecord, JournalEntry, JournalLine, RunFacts, standing_records};
use crate::task::{CheckboxId, Task, TaskError};

use super::error::{Halt, RunError};
use super::progress::LastIteration;
use super::run::Run;

/// The checkboxes that are verified after these lines of the journal: those of the newest record that no retry took back,
/// without those that an edit changed since.
pub fn ticked_after(facts: &RunFacts, lines: &[JournalLine]) -> Result<BTreeSet<CheckboxId>, TaskError> {
    match standing_records(lines).pop() {
        Some(record) => still_ticked(record, facts, lines),
        None => Ok(BTreeSet::new()),
    }
}

/// The checkboxes that were verified in an iteration and that no edit changed since.
fn still_ticked(
    record: &IterationRecord,
    facts: &RunFacts,
    lines: &[JournalLine],
) -> Result<BTreeSet<CheckboxId>, TaskError> {
    let is_it = |line: &JournalLine| matches!(&line.entry, JournalEntry::Recorded(found) if found.iteration == record.iteration);
    let at = lines.iter().position(is_it).unwrap_or(0);
    let then = Task::parse(facts.task_after(&lines[..at]))?;
    let now = Task::parse(facts.task_after(lines))?;
    let ids = now.checkboxes.iter().map(|checkbox| checkbox.id.clone());
    let is_ticked = |id: &CheckboxId| {
        record.ticked.iter().any(|ticked| ticked == id.as_str()) && then.keeps_checkbox(&now, id.as_str())
    };
    Ok(ids.filter(is_ticked).collect())
}

impl Run<'_> {
    /// Goes on with another text of the task. Returns why it is refused, if so.
    pub(super) async fn edit(&mut self, text: &str) -> Result<Option<String>, Halt> {
        let edited = match Task::parse(text) {
            Ok(edited) => edited,
            Err(error) => return Ok(Some(error.to_string())),
        };
        if let Some(key) = self.task.fixed_keys_changed(&edited).first() {
            return Ok(Some(format!("`{key}` is fixed when a run is created")));
        }
        let of_project = &self.inputs.settings.setup_command;
        let setup = edited.frontmatter.setup_command.as_ref().or(of_project.as_ref());
        let progress = &mut self.progress;
        let kept = |id: &CheckboxId| self.task.keeps_checkbox(&edited, id.as_str());
        progress.ticked.retain(kept);
        progress
            .budget
            .follow(&self.task.frontmatter, &edited.frontmatter);
        if self.workplace.setup.as_ref() != setup {
            self.workplace.setup = setup.cloned();
            self.workplace.reset_clone(progress).await?;
        }
        text.clone_into(&mut progress.task);
        self.task = edited;
        Ok(None)
    }

    /// Goes back to the code as it was after an iteration. Returns why that is refused, if so.
    pub(super) fn retry(&mut self, from: u32) -> Result<Option<String>, Halt> {
        let (last, facts) = (self.progress.iterations(), self.inputs.dir.facts());
        let records = standing_records(self.progress.journal.lines());
        let record = records.iter().find(|record| record.iteration == from);
        let (tip, tree, ticked) = match record {
            Some(record) => {
                let ticked = still_ticked(record, facts, self.progress.journal.lines());
                let ticked = ticked.map_err(RunError::from)?;
                (record.tip.clone(), record.tree.clone(), ticked)
            }
            None if from == 0 => (
                facts.base.clone(),
                self.progress.base_tree.clone(),
                BTreeSet::new(),
            ),
            None => return Ok(Some(format!("there is no iteration {from} to go back to"))),
        };
        (self.progress.tip, self.progress.tree, self.progress.ticked) = (tip, tree, ticked);
        self.progress.set_last(LastIteration::default())?;
        let note = format!(
            "\nNote from a person: the work of iterations {} to {last} was taken back. Notes about it may be wrong.\n",
            from + 1
        );
        self.progress.files.append("notes.md", &note)?;
        Ok(None)
    }

    /// Shows an intervention that changed the task or the code in the clone, once it is in the journal.
    pub(super) async fn show_changes(&mut self, intervention: &Intervention) -> Result<(), RunError> {
        match intervention {
            Intervention::Edit { .. } => self.workplace.show_task(&self.progress).await,
            Intervention::Retry { .. } => {
                self.workplace.known.push(self.progress.tip.clone());
                self.workplace.reset_clone(&mut self.progress).await
            }
            _ => Ok(()),
        }
    }
}
