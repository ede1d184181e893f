//! The progress of a run: everything that a checkpoint saves and a resume restores.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::ObjectId;
use crate::scm::{Checkpoint, CheckpointContent, Checkpoints, ScmError, StateFile};
use crate::state::{
    IterationRecord, Journal, JournalEntry, JournalLine, RunFacts, RunOwner, StateError, to_json,
};
use crate::task::{CheckboxId, render_ticks};
use crate::text::visible;

use super::accounts::IterationWait;
use super::actions::ActionsLog;
use super::budget::{Budget, Ledger, since_rest};
use super::edit::ticked_after;
use super::lease::{LEASE_FILE, Lease, taken_over};
use super::run_files::RunFiles;
use super::{RunError, RunInputs};

/// The run file that keeps [`LastIteration`] across a resume.
const LAST_ITERATION_FILE: &str = "last_iteration.json";

/// Everything that a checkpoint saves, and where it is saved.
pub(super) struct RunProgress<'a> {
    pub(super) inputs: RunInputs<'a>,
    /// The budget: that of the settings, with what edits of the task changed since.
    pub(super) budget: Budget,
    /// The text of the task, with the edits of people.
    pub(super) task: String,
    /// What happened so far. A journal entry is the only proof that something happened.
    pub(super) journal: Journal,
    /// The host's copy of `.ralph/`.
    pub(super) files: RunFiles,
    /// The checkboxes that were verified.
    pub(super) ticked: BTreeSet<CheckboxId>,
    /// The last commit that was handed back.
    pub(super) tip: ObjectId,
    /// The tree of the clone, with uncommitted work.
    pub(super) tree: ObjectId,
    /// The tree of the base commit.
    pub(super) base_tree: ObjectId,
    /// What the last iteration left for the next prompt.
    pub(super) last: LastIteration,
    /// The end of a wait in progress, which the lease must outlast.
    pub(super) waiting_until: Option<Timestamp>,
    /// A wait for a model that is over and not in the journal yet.
    pub(super) unrecorded_wait: Duration,
    /// How long the current iteration waited for models, which does not count against its time limit.
    pub(super) waited: IterationWait,
    /// The owner that checkpoints name. Without a queue it keeps the epoch of the last one, so that epochs never decrease.
    owner: RunOwner,
    checkpoints: Checkpoints,
    /// The newest checkpoint.
    saved: Option<ObjectId>,
    /// The number of the last journal line in it.
    saved_seq: u64,
}

/// What the last iteration left for the next prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LastIteration {
    /// Uncommitted paths, one per line.
    pub(super) status: String,
    /// A summary of what it changed.
    pub(super) diff_summary: String,
    /// The run file with its diff.
    pub(super) diff_file: Option<String>,
    /// The run file with the newest test output.
    pub(super) tests_file: Option<String>,
    /// The tree those tests ran on.
    pub(super) tested_tree: Option<ObjectId>,
}

impl<'a> RunProgress<'a> {
    /// The progress of a run before its first iteration. `tree` is the tree of the base commit.
    pub(super) fn new(
        inputs: RunInputs<'a>,
        checkpoints: Checkpoints,
        journal: Journal,
        tree: ObjectId,
    ) -> Self {
        Self {
            inputs,
            budget: inputs.settings.budget.clone(),
            task: inputs.dir.facts().task_after(journal.lines()).to_owned(),
            journal,
            files: RunFiles::new(inputs.dir.ralph_dir(), inputs.parts.redactor.clone()),
            ticked: BTreeSet::new(),
            tip: inputs.dir.facts().base.clone(),
            base_tree: tree.clone(),
            tree,
            last: LastIteration::default(),
            waiting_until: None,
            unrecorded_wait: Duration::ZERO,
            waited: IterationWait::default(),
            owner: inputs.parts.owner.clone(),
            checkpoints,
            saved: None,
            saved_seq: 0,
        }
    }

    /// Restores what a checkpoint holds. `saved_seq` is the number of the last journal line in it.
    pub(super) async fn restore(&mut self, checkpoint: &Checkpoint, saved_seq: u64) -> Result<(), RunError> {
        self.files.restore_from(&self.checkpoints, checkpoint).await?;
        let lease = Lease::read(&self.checkpoints, &checkpoint.commit).await?;
        self.owner.epoch = self.owner.epoch.max(lease.and_then(|lease| lease.owner.epoch));
        self.saved = Some(checkpoint.commit.clone());
        self.saved_seq = saved_seq;
        self.tip = checkpoint.tip.clone();
        self.tree = checkpoint.work_tree.clone();
        self.ticked = ticked_after(self.facts(), self.journal.lines())?;
        let last = self.files.read(LAST_ITERATION_FILE)?;
        if !last.is_empty() {
            self.last = serde_json::from_str(&last).map_err(StateError::corrupt(LAST_ITERATION_FILE))?;
        }
        Ok(())
    }

    /// Lets the first checkpoint follow this one, which was saved when the run was queued.
    pub(super) fn follow(&mut self, queued: &Checkpoint) {
        self.saved = Some(queued.commit.clone());
    }

    /// Writes a journal entry. The next checkpoint contains it.
    pub(super) fn append(&mut self, entry: JournalEntry) -> Result<(), StateError> {
        self.record_wait()?;
        let entry = self.redacted(entry)?;
        self.journal.append(self.inputs.parts.clock.now(), entry)
    }

    /// Writes down a wait for a model that is over, also one that a person cut short: it is no time at work.
    pub(super) fn record_wait(&mut self) -> Result<(), StateError> {
        let waited = std::mem::take(&mut self.unrecorded_wait);
        if waited.is_zero() {
            return Ok(());
        }
        self.waiting_until = None;
        let milliseconds = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.append(JournalEntry::Waited { milliseconds })
    }

    /// Fails if another process took the run over, so that the caller writes nothing to the forge. Saves a checkpoint, which
    /// also extends the lease: only its compare-and-swap shows who owns the run.
    pub(super) async fn renew_lease(&mut self) -> Result<(), RunError> {
        self.checkpoint(None).await
    }

    /// Saves everything under the state ref of the run. `entry` is written to the journal only when that succeeded, so
    /// it takes effect together with the checkpoint.
    pub(super) async fn checkpoint(&mut self, entry: Option<JournalEntry>) -> Result<(), RunError> {
        self.record_wait()?;
        let now = self.inputs.parts.clock.now();
        let entry = entry.map(|entry| self.redacted(entry)).transpose()?;
        let line = entry.map(|entry| self.journal.next(now, entry));
        let unsaved = self
            .journal
            .lines()
            .iter()
            .filter(|line| line.seq > self.saved_seq);
        let segment: Vec<&JournalLine> = unsaved.chain(&line).collect();
        let last = segment.last().map_or(self.saved_seq, |line| line.seq);
        let file = |path: &str, bytes| StateFile {
            path: path.to_owned(),
            bytes,
        };
        let lease = Lease::new(self.inputs, self.owner.clone(), now, self.waiting_until);
        let mut files = vec![
            file("run.json", to_json("run.json", self.facts())?),
            file(LEASE_FILE, to_json(LEASE_FILE, &lease)?),
            file("ralph_task.md", self.task_text().into_bytes()),
        ];
        if !segment.is_empty() {
            let path = format!("journal/{last:08}.jsonl");
            let mut text = Vec::new();
            for line in segment {
                text.extend(to_json(&path, line)?);
                text.push(b'\n');
            }
            files.push(file(&path, text));
        }
        files.extend(self.files.take_unsaved()?);
        let content = CheckpointContent {
            iteration: u64::from(self.iterations()),
            tip: &self.tip,
            work_tree: &self.tree,
            files: &files,
            at: now,
        };
        let saved = self.checkpoints.save(self.saved.as_ref(), &content).await;
        if let Err(ScmError::RefMoved { .. }) = saved
            && let Some(error) = taken_over(self.inputs, &self.checkpoints).await?
        {
            return Err(error);
        }
        self.saved = Some(saved?);
        self.saved_seq = last;
        if let Some(line) = line {
            self.journal.write(line)?;
        }
        Ok(())
    }

    /// Whether there is a checkpoint yet.
    pub(super) fn is_saved(&self) -> bool {
        self.saved.is_some()
    }

    /// The number of recorded iterations.
    pub(super) fn iterations(&self) -> u32 {
        self.last_record().map_or(0, |record| record.iteration)
    }

    /// The newest recorded iteration.
    pub(super) fn last_record(&self) -> Option<&IterationRecord> {
        self.journal.records().next_back()
    }

    /// What the run used so far.
    pub(super) fn ledger(&self) -> Ledger {
        Ledger::from_journal(self.journal.lines(), self.journal.since_last_line())
    }

    /// What the run used since it last ended and a person resumed it.
    pub(super) fn recent_ledger(&self) -> Ledger {
        Ledger::from_journal(since_rest(self.journal.lines()), self.journal.since_last_line())
    }

    /// The task with the ticks of the runner.
    pub(super) fn task_text(&self) -> String {
        render_ticks(&self.task, &self.ticked)
    }

    /// The output of the newest test run; empty before the first one.
    pub(super) fn test_output(&self) -> Result<String, StateError> {
        let file = self.last.tests_file.as_deref();
        match file.and_then(|file| file.strip_prefix(".ralph/")) {
            Some(name) => self.files.read(name),
            None => Ok(String::new()),
        }
    }

    /// Replaces what the next prompt says about the last iteration.
    pub(super) fn set_last(&mut self, last: LastIteration) -> Result<(), StateError> {
        let text = to_json(LAST_ITERATION_FILE, &last)?;
        self.files
            .write(LAST_ITERATION_FILE, &String::from_utf8_lossy(&text))?;
        self.last = last;
        Ok(())
    }

    /// Moves what a person appended to the run files into the inbox, and warns about other changes by hand.
    pub(super) fn collect_hand_edits(&mut self) -> Result<(), StateError> {
        let (inbox, now) = (self.inputs.dir.inbox(), self.inputs.parts.clock.now());
        for warning in self.files.by_hand.collect(&inbox, now)? {
            self.log_activity(&warning)?;
            self.inputs.reporter.warn(warning);
        }
        Ok(())
    }

    /// Adds a line to `activity.log`.
    pub(super) fn log_activity(&mut self, what: &str) -> Result<(), StateError> {
        let at = self.inputs.parts.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let line = format!("{at} {}\n", visible(&what.replace('\n', " ")));
        self.files.append("activity.log", &line)
    }

    /// Adds the actions of an agent to `activity.log`.
    pub(super) fn log_actions(&mut self, actions: &mut ActionsLog) -> Result<(), StateError> {
        let mut lines = actions.activity.drain(..);
        lines.try_for_each(|line| self.log_activity(&line))
    }

    /// Adds an entry to `errors.log`.
    pub(super) fn log_error(&mut self, iteration: u32, text: &str) -> Result<(), StateError> {
        let entry = format!("[iteration {iteration}] {}\n", visible(text.trim_end()));
        self.files.append("errors.log", &entry)
    }

    /// What is fixed about the run.
    pub(super) fn facts(&self) -> &'a RunFacts {
        self.inputs.dir.facts()
    }

    fn redacted(&self, entry: JournalEntry) -> Result<JournalEntry, StateError> {
        let redacted = self.inputs.parts.redactor.redact_json(entry);
        redacted.map_err(StateError::encode(self.inputs.dir.journal_file()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::{SECRET, TestRun};

    fn entries(progress: &RunProgress<'_>) -> Vec<JournalEntry> {
        let lines = progress.journal.lines().iter();
        lines.map(|line| line.entry.clone()).collect()
    }

    fn started(iteration: u32) -> JournalEntry {
        JournalEntry::IterationStarted { iteration }
    }

    #[tokio::test]
    async fn a_checkpoint_restores_everything_it_saved() {
        let run = TestRun::new().await;
        let mut before = run.progress().await;
        before.append(started(1)).unwrap();
        before.files.write("notes.md", "a note").unwrap();
        let last = LastIteration {
            status: "modified a".to_owned(),
            tested_tree: Some(before.tree.clone()),
            ..LastIteration::default()
        };
        before.set_last(last.clone()).unwrap();
        before.checkpoint(Some(started(2))).await.unwrap();
        before.append(started(3)).unwrap();
        before
            .files
            .write("notes.md", "written after the checkpoint")
            .unwrap();

        let after = run.progress().await;
        assert!(after.is_saved());
        assert_eq!(entries(&after), [started(1), started(2), started(3)]);
        assert_eq!(after.files.read("notes.md").unwrap(), "a note");
        assert_eq!(
            (&after.last, &after.tip, &after.tree),
            (&last, &before.tip, &before.tree)
        );
    }

    #[tokio::test]
    async fn an_entry_takes_effect_only_with_its_checkpoint() {
        let run = TestRun::new().await;
        let mut owner = run.progress().await;
        let mut late = run.progress().await;
        owner.checkpoint(None).await.unwrap();
        let refused = late.checkpoint(Some(started(1))).await;
        let refused = refused.unwrap_err();
        assert!(refused.is_taken_over(), "{refused:?}");
        assert_eq!(entries(&late), []);
    }

    #[tokio::test]
    async fn no_secret_gets_into_the_journal_or_the_run_files() {
        let run = TestRun::new().await;
        let mut progress = run.progress().await;
        let name = format!("profile {SECRET}");
        progress.append(JournalEntry::Profile { name }).unwrap();
        progress.log_error(1, &format!("{SECRET} failed")).unwrap();
        progress.log_activity(&format!("used\n{SECRET}")).unwrap();
        let name = "profile [redacted]".to_owned();
        assert_eq!(entries(&progress), [JournalEntry::Profile { name }]);
        let errors = progress.files.read("errors.log").unwrap();
        assert_eq!(errors, "[iteration 1] [redacted] failed\n");
        let activity = progress.files.read("activity.log").unwrap();
        assert!(activity.ends_with("Z used [redacted]\n"), "{activity}");
    }

    #[tokio::test]
    async fn ticks_are_shown_in_the_task() {
        let run = TestRun::new().await;
        let mut progress = run.progress().await;
        let task = run.task();
        progress.ticked.insert(task.checkboxes[0].id.clone());
        let text = progress.task_text();
        assert!(
            text.contains("- [x] M1.1") && text.contains("- [ ] M1.2"),
            "{text}"
        );
    }
}
