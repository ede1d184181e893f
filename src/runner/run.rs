//! One run in the hands of its owner: the loop itself, its checkpoints and its end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::{EventKind, RunEnd};
use crate::id::ObjectId;
use crate::sandbox::{HourlyCost, Sandbox, SandboxSpec, clone_dir};
use crate::scm::{Checkpoints, Content, PrivateClone, Repository, SeedPack, Start, StateFile};
use crate::state::{
    Intervention, IterationVerdict, Journal, JournalEntry, JournalLine, RunDir, RunFacts, RunLock,
    RunOutcomeKind, StateError, write_atomically,
};
use crate::task::{CheckboxId, Task, render_ticks};

use super::budget::{Ledger, since_rest};
use super::error::Halt;
use super::lease::LEASE_FILE;
use super::notebook::Notebook;
use super::report::Reporter;
use super::settings::RunSettings;
use super::{ComputeCost, RunError, RunOutcome, RunParts};

/// One run in the hands of its owner.
pub(super) struct Run<'a> {
    pub(super) parts: &'a RunParts,
    pub(super) settings: &'a RunSettings,
    pub(super) spec: &'a SandboxSpec,
    pub(super) dir: &'a RunDir,
    pub(super) task: Task,
    pub(super) journal: Journal,
    pub(super) notebook: Notebook,
    pub(super) repo: Repository,
    pub(super) checkpoints: Checkpoints,
    pub(super) sandbox: Box<dyn Sandbox>,
    /// Whether an iteration began in it.
    pub(super) worn: bool,
    pub(super) reporter: Reporter,
    pub(super) seed: SeedPack,
    /// The newest checkpoint.
    pub(super) saved: Option<ObjectId>,
    /// The last journal line it holds.
    pub(super) saved_seq: u64,
    pub(super) ticked: BTreeSet<CheckboxId>,
    pub(super) tip: ObjectId,
    pub(super) tree: ObjectId,
    /// Commits the user's repository has, so that a hand-back need not bring them.
    pub(super) known: Vec<ObjectId>,
    pub(super) seen: Seen,
    /// Milliseconds the current iteration spent waiting, which do not count against its time.
    pub(super) waiting: Arc<AtomicU64>,
    /// Until when a wait lasts that has begun.
    pub(super) lease_until: Option<Timestamp>,
    pub(super) _lock: RunLock,
}

/// What the last iteration left for the next prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Uncommitted paths, one a line.
    pub(super) status: String,
    /// What it changed, summed up.
    pub(super) diff_summary: String,
    /// The file with its diff.
    pub(super) diff_file: Option<String>,
    /// The file with the newest test output.
    pub(super) tests_file: Option<String>,
    /// The tree those tests ran on.
    pub(super) tested_tree: Option<ObjectId>,
}

/// The file in the notebook that keeps [`Seen`] across a resume.
pub(super) const SEEN_FILE: &str = "last_iteration.json";

impl Run<'_> {
    /// Iterates until a rule or an error ends it.
    pub(super) async fn finish_it(&mut self) -> Result<RunOutcome, RunError> {
        let mut losses = 0;
        loop {
            let went = match self.turn().await {
                Ok(()) => {
                    losses = 0;
                    Ok(())
                }
                Err(Halt::Broken(error)) => {
                    losses += 1;
                    self.mend(error, losses).await
                }
                end @ Err(Halt::End { .. }) => end,
            };
            self.tell_notices();
            match went {
                Ok(()) => {}
                Err(Halt::End { kind, reason }) => return self.finish(kind, reason).await,
                Err(Halt::Broken(error)) => return Err(self.broken(error)),
            }
        }
    }

    /// What is done between two iterations, and one iteration.
    async fn turn(&mut self) -> Result<(), Halt> {
        self.requests().await?;
        match self.standing_verdict() {
            IterationVerdict::GoOn => {}
            IterationVerdict::Complete => return self.publish().await,
            // Recorded, and then a crash: the end that was decided comes now.
            IterationVerdict::Failed { reason } => return Err(Halt::failed(reason)),
            IterationVerdict::Paused { reason } => return Err(Halt::paused(reason)),
        }
        self.ledger().check(&self.settings.budget)?;
        self.check_prices()?;
        self.iterate().await
    }

    /// What the newest record decided, unless the run has rested since and a person took it up again.
    fn standing_verdict(&self) -> IterationVerdict {
        let newest = since_rest(self.journal.lines())
            .iter()
            .rev()
            .find_map(|line| match &line.entry {
                JournalEntry::Recorded(record) => Some(record.verdict.clone()),
                _ => None,
            });
        let complete = self
            .journal
            .records()
            .next_back()
            .filter(|record| record.verdict == IterationVerdict::Complete);
        newest
            .or(complete.map(|record| record.verdict.clone()))
            .unwrap_or(IterationVerdict::GoOn)
    }

    /// Carries out what people asked for.
    async fn requests(&mut self) -> Result<(), Halt> {
        let inbox = self.dir.inbox();
        for (path, request) in inbox.waiting()? {
            let carried_out = self.carry_out(request, &path).await;
            // A crash must not lose what was asked for: it is kept until what came of it is in a checkpoint.
            if !matches!(carried_out, Err(Halt::Broken(_))) {
                inbox.done_with(&path)?;
            }
            carried_out?;
        }
        Ok(())
    }

    async fn carry_out(&mut self, request: Intervention, path: &Path) -> Result<(), Halt> {
        let carried_out = match request {
            Intervention::Stop => return Err(Halt::stopped("stopped by a person")),
            Intervention::Pause => return Err(Halt::paused("a person asked for a pause")),
            // An iteration is about to begin with a fresh context anyway.
            Intervention::Rotate => return Ok(()),
            Intervention::Note { text } => self.add_note(&text, path).await,
            Intervention::Doctor => self.consult().await,
        };
        if !matches!(carried_out, Err(Halt::Broken(_))) {
            self.checkpoint(None).await?;
        }
        carried_out
    }

    async fn add_note(&mut self, text: &str, path: &Path) -> Result<(), Halt> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // A crash may have come between the checkpoint that holds it and the request's removal.
        let mark = format!("<!-- {name} -->");
        if self.notebook.read("notes.md")?.contains(&mark) {
            return Ok(());
        }
        let note = format!("\nNote from a person: {} {mark}\n", text.trim());
        self.log_activity("a person left a note")?;
        self.notebook.append("notes.md", &note)?;
        let clone = self.clone_dir();
        self.notebook.show(self.sandbox.as_ref(), &clone).await?;
        Ok(())
    }

    /// Saves everything under the run's state ref; `entry`, when given, becomes true with it.
    pub(super) async fn checkpoint(&mut self, entry: Option<JournalEntry>) -> Result<(), Halt> {
        let entry = entry.map(|entry| self.reporter.clean(entry));
        let line = entry.map(|entry| self.journal.next(self.parts.clock.now(), entry));
        let segment: Vec<&JournalLine> = self
            .journal
            .lines()
            .iter()
            .filter(|line| line.seq > self.saved_seq)
            .chain(&line)
            .collect();
        let last = segment.last().map_or(self.saved_seq, |line| line.seq);
        let file = |path: &str, bytes| StateFile {
            path: path.to_owned(),
            bytes,
        };
        let mut files = vec![
            file("run.json", to_json(self.dir.facts())),
            file(LEASE_FILE, to_json(&self.lease())),
            file("ralph_task.md", self.task_text().into_bytes()),
        ];
        if !segment.is_empty() {
            files.push(file(&format!("journal/{last:08}.jsonl"), lines_text(&segment)));
        }
        let unsaved = self.notebook.take_unsaved()?;
        files.extend(
            unsaved
                .into_iter()
                .map(|(name, bytes)| file(&format!("ralph/{name}"), bytes)),
        );
        let content = Content {
            iteration: u64::from(self.recorded()),
            tip: &self.tip,
            work_tree: &self.tree,
            files: &files,
            at: self.parts.clock.now(),
        };
        self.saved = Some(self.checkpoints.save(self.saved.as_ref(), &content).await?);
        self.saved_seq = last;
        if let Some(line) = line {
            self.journal.write(line)?;
        }
        Ok(())
    }

    /// Ends the run by rule: recorded, checkpointed, reported.
    async fn finish(&mut self, kind: RunOutcomeKind, reason: String) -> Result<RunOutcome, RunError> {
        let reason = self.parts.redactor.redact(&reason);
        if let Err(error) = self.sandbox.end_processes().await {
            self.reporter
                .warn(format!("the sandbox's processes could not be ended: {error}"));
        }
        self.log_activity(&format!("the run ended: {}: {reason}", end_of(kind)))?;
        let entry = JournalEntry::Ended {
            outcome: kind,
            reason: reason.clone(),
        };
        if let Err(Halt::Broken(error)) = self.checkpoint(Some(entry)).await {
            return Err(self.broken(error));
        }
        self.put_to_rest(kind).await?;
        self.reporter.emit(EventKind::RunEnded {
            outcome: end_of(kind),
            reason: reason.clone(),
        });
        Ok(self.outcome(kind, reason))
    }

    fn broken(&self, error: RunError) -> RunError {
        self.reporter.broken(error)
    }

    fn outcome(&self, kind: RunOutcomeKind, reason: String) -> RunOutcome {
        let ended = Ended {
            kind,
            reason,
            tip: self.tip.clone(),
            hourly: self.parts.provider.hourly_cost(self.spec),
        };
        ended.outcome(self.dir.facts(), self.journal.lines(), self.parts.clock.now())
    }

    /// The number of recorded iterations.
    pub(super) fn recorded(&self) -> u32 {
        self.journal
            .records()
            .next_back()
            .map_or(0, |record| record.iteration)
    }

    /// What is spent so far.
    pub(super) fn ledger(&self) -> Ledger {
        Ledger::from_journal(self.journal.lines(), self.parts.clock.now())
    }

    /// Writes a journal line.
    pub(super) fn note(&mut self, entry: JournalEntry) -> Result<(), StateError> {
        let entry = self.reporter.clean(entry);
        self.journal.append(self.parts.clock.now(), entry).map(|_| ())
    }

    /// The clone's directory inside the sandbox.
    pub(super) fn clone_dir(&self) -> PathBuf {
        clone_dir(self.sandbox.as_ref())
    }

    /// The clone itself.
    pub(super) fn private_clone(&self) -> PrivateClone<'_> {
        PrivateClone::existing(self.sandbox.as_ref(), self.clone_dir(), self.start_at(&self.tip))
    }

    /// What a clone at this commit starts from.
    pub(super) fn start_at(&self, commit: &ObjectId) -> Start {
        Start {
            branch: self.dir.facts().branch.clone(),
            commit: commit.clone(),
            identity: self.settings.identity.clone(),
            format: self.repo.object_format(),
        }
    }

    /// The task with the runner's ticks.
    pub(super) fn task_text(&self) -> String {
        render_ticks(&self.dir.facts().task, &self.ticked)
    }

    /// Puts the task with its ticks where a person and the agent see it.
    pub(super) async fn show_task(&mut self) -> Result<(), Halt> {
        let text = self.task_text();
        write_atomically(&self.dir.task_file(), text.as_bytes())?;
        let file = self.clone_dir().join("ralph_task.md");
        // Whatever the agent made of it, a directory or a link, gives way.
        self.sandbox.files().remove(&file).await?;
        self.sandbox.files().write(&file, text.as_bytes(), 0o644).await?;
        Ok(())
    }

    /// Adds a line to `activity.log`.
    pub(super) fn log_activity(&mut self, what: &str) -> Result<(), StateError> {
        let at = self.parts.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ");
        self.notebook
            .append("activity.log", &format!("{at} {}\n", what.replace('\n', " ")))
    }
}

/// How a run ended.
pub(super) struct Ended {
    pub(super) kind: RunOutcomeKind,
    pub(super) reason: String,
    pub(super) tip: ObjectId,
    /// What an hour of its sandbox costs, where it does.
    pub(super) hourly: Option<HourlyCost>,
}

impl Ended {
    /// The outcome, with what the journal adds up to.
    pub(super) fn outcome(self, facts: &RunFacts, lines: &[JournalLine], at: Timestamp) -> RunOutcome {
        let ledger = Ledger::from_journal(lines, at);
        let pull_request = lines.iter().rev().find_map(|line| match &line.entry {
            JournalEntry::PullRequest { location, .. } => Some(location.clone()),
            _ => None,
        });
        RunOutcome {
            run: facts.id.clone(),
            kind: self.kind,
            reason: self.reason,
            branch: facts.branch.clone(),
            tip: self.tip,
            pull_request,
            iterations: ledger.iterations,
            tokens: ledger.tokens,
            cost: ledger.cost,
            unpriced_calls: ledger.unpriced_calls,
            compute: self.hourly.map(|hourly| ComputeCost::of(hourly, &ledger)),
        }
    }
}

/// How an outcome is reported.
pub(super) fn end_of(kind: RunOutcomeKind) -> RunEnd {
    match kind {
        RunOutcomeKind::Done => RunEnd::Done,
        RunOutcomeKind::Failed => RunEnd::Failed,
        RunOutcomeKind::Paused => RunEnd::Paused,
        RunOutcomeKind::Stopped => RunEnd::Stopped,
    }
}

fn lines_text(lines: &[&JournalLine]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| [to_json(line), b"\n".to_vec()].concat())
        .collect()
}

/// JSON of a value whose types cannot fail to serialise: strings, numbers, lists and maps with string keys.
pub(super) fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
