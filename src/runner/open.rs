//! Opens a run: for the first time, or again after a stop, a crash, a lost sandbox, or on another host.

use std::fs;
use std::io;
use std::time::Duration;

use crate::event::EventKind;
use crate::scm::{self, Checkpoint, Checkpoints, Repository};
use crate::state::{JournalEntry, RUN_FORMAT, RunLock, RunOutcomeKind, StateError, if_exists};
use crate::task::{Task, starter};

use super::error::Halt;
use super::progress::RunProgress;
use super::run::Run;
use super::saved::SavedRun;
use super::workplace::Workplace;
use super::{RunError, RunInputs, RunOutcome};

/// The run files of a new run.
const STARTERS: [(&str, &str); 6] = [
    ("guardrails.md", starter::GUARDRAILS),
    ("progress.md", starter::PROGRESS),
    ("notes.md", starter::NOTES),
    ("diagnostics.md", starter::DIAGNOSTICS),
    ("errors.log", starter::ERRORS_LOG),
    ("activity.log", starter::ACTIVITY_LOG),
];

/// The run files that begin as those of the project, where it has them.
const SEEDED: [&str; 2] = ["guardrails.md", "notes.md"];

/// The longest text that one begins with, in bytes.
const MAX_SEED: u64 = 256 << 10;

/// How long to wait for git processes of an earlier owner.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A run that was opened.
pub(super) enum Opened<'a> {
    /// It can be driven.
    Active(Box<Run<'a>>),
    /// It was already done.
    Done(Box<RunOutcome>),
}

/// Opens a run from its beginning or from its last checkpoint. Creates or reopens its sandbox. The caller holds the lock
/// until it is through with the run.
pub(super) async fn open<'a>(inputs: RunInputs<'a>, lock: &RunLock) -> Result<Opened<'a>, RunError> {
    let (parts, facts) = (inputs.parts, inputs.dir.facts());
    settle(inputs, lock).await?;
    let reporter = inputs.reporter;
    let repo = Repository::open(parts.host.clone(), &facts.repository)
        .await?
        .with_scratch(inputs.dir.path());
    repo.check_writable()?;
    let checkpoints =
        Checkpoints::new(repo.clone(), facts.id.clone()).with_remote(inputs.settings.state_remote.clone());
    checkpoints.sync().await?;
    let saved = SavedRun::read(inputs, &checkpoints).await?;
    let is_done = saved.is_done(&inputs.dir.inbox())?;
    if let Some(checkpoint) = saved.checkpoint.as_ref().filter(|_| is_done) {
        let outcome = saved.conclude(inputs, &checkpoints, checkpoint).await?;
        return Ok(Opened::Done(Box::new(outcome)));
    }
    let task = Task::parse(facts.task_after(saved.journal.lines()))?;
    if saved.begun().is_none() {
        reporter.emit(EventKind::RunStarted {
            task: task.title().to_owned(),
            branch: facts.branch.clone(),
            provider: parts.provider.name().to_owned(),
            agent: agent_name(inputs),
        });
    }
    let begun = saved.begun().cloned();
    inputs.allow_hosts_again(saved.journal.lines());
    let sandbox = inputs.open_checked_sandbox(&repo).await?;
    let tree = repo.tree_of(&facts.base).await?;
    let setup = task.frontmatter.setup_command.clone();
    let mut run = Run {
        inputs,
        task,
        progress: RunProgress::new(inputs, checkpoints, saved.journal, tree),
        workplace: Workplace::new(inputs, sandbox, repo, setup).await?,
        shared_evidence: None,
    };
    let opened = if let Some(checkpoint) = begun {
        run.resume(&checkpoint, saved.saved_seq, saved.repairs).await
    } else {
        let begun = run.begin(saved.checkpoint.as_ref(), saved.repairs).await;
        if matches!(begun, Err(Halt::Broken(RunError::Refused(_)))) {
            run.workplace.release(RunOutcomeKind::Failed).await?;
        }
        begun
    };
    let error = match opened {
        Ok(()) => return Ok(Opened::Active(Box::new(run))),
        Err(Halt::Broken(error)) => error,
        Err(Halt::End { reason, .. }) => RunError::Refused(reason),
    };
    if error.is_taken_over() {
        run.leave(&error).await?;
    }
    Err(error)
}

/// The agent that a run starts with.
fn agent_name(inputs: RunInputs<'_>) -> String {
    let profile = &inputs.settings.profiles.default;
    inputs.parts.agents.for_profile(profile).name().to_owned()
}

impl Run<'_> {
    /// Starts a new run: starter files and the first checkpoint, on top of the one that was saved when it was queued.
    async fn begin(&mut self, queued: Option<&Checkpoint>, repairs: Vec<String>) -> Result<(), Halt> {
        for repair in repairs {
            self.inputs.reporter.warn(format!("repaired: {repair}"));
        }
        for (name, text) in STARTERS {
            let seed = self.seed(name)?;
            self.progress.files.write(name, seed.as_deref().unwrap_or(text))?;
        }
        self.append_opened()?;
        self.progress.log_activity("the run began")?;
        self.workplace.reset_clone(&mut self.progress).await?;
        if let Some(queued) = queued {
            self.progress.follow(queued);
        }
        self.progress.checkpoint(None).await?;
        let (repo, base) = (&self.workplace.repo, &self.inputs.dir.facts().base);
        for warning in repo.warnings(base).await? {
            self.inputs.reporter.warn(warning);
        }
        let settings = scm::agent_settings(repo, base).await?;
        if !settings.is_empty() {
            let files: Vec<String> = settings.iter().map(ToString::to_string).collect();
            self.inputs.reporter.warn(format!(
                "the repository contains agent settings, which can make an agent run more than its prompt asks for: {}",
                files.join(", ")
            ));
        }
        Ok(())
    }

    /// The text that the project's own `.ralph/` has for a file of a new run.
    fn seed(&self, name: &str) -> Result<Option<String>, StateError> {
        let project = self.inputs.dir.facts().project.as_ref();
        let Some(project) = project.filter(|_| SEEDED.contains(&name)) else {
            return Ok(None);
        };
        let path = project.join(".ralph").join(name);
        let metadata = if_exists(fs::symlink_metadata(&path)).map_err(StateError::io("read", &path))?;
        let Some(metadata) = metadata else {
            return Ok(None);
        };
        let is_linked = fs::symlink_metadata(project.join(".ralph")).is_ok_and(|dir| dir.is_symlink());
        if !metadata.is_file() || is_linked || metadata.len() > MAX_SEED {
            // A link could lead to any file of the host, whose text would be in the prompt.
            let reason = format!(
                "it must be a file of at most {} KiB, not behind a link",
                MAX_SEED >> 10
            );
            let error = io::Error::new(io::ErrorKind::InvalidInput, reason);
            return Err(StateError::io("read", &path)(error));
        }
        let text = fs::read_to_string(&path);
        text.map(Some).map_err(StateError::io("read", &path))
    }

    /// Resumes a run from a checkpoint, and saves a checkpoint of its own that names the new owner.
    async fn resume(
        &mut self,
        checkpoint: &Checkpoint,
        saved_seq: u64,
        repaired: Vec<String>,
    ) -> Result<(), Halt> {
        self.progress.collect_hand_edits()?;
        self.progress.restore(checkpoint, saved_seq).await?;
        self.workplace.known.push(checkpoint.tip.clone());
        self.append_opened()?;
        self.progress.settle_crashed_sessions()?;
        let recorded = self.progress.iterations();
        self.progress
            .log_activity(&format!("the run was resumed after iteration {recorded}"))?;
        self.progress.checkpoint(None).await?;
        self.workplace.reset_clone(&mut self.progress).await?;
        self.inputs.reporter.emit(EventKind::RunResumed {
            recorded,
            repaired,
            agent: agent_name(self.inputs),
            provider: self.inputs.parts.provider.name().to_owned(),
        });
        Ok(())
    }

    fn append_opened(&mut self) -> Result<(), StateError> {
        let owner = self.inputs.parts.owner.to_string();
        self.progress.append(JournalEntry::Opened {
            owner,
            format: RUN_FORMAT,
        })
    }
}

/// Removes what an earlier owner left. Waits for git processes it started, so that they do not interfere later.
async fn settle(inputs: RunInputs<'_>, lock: &RunLock) -> Result<(), RunError> {
    // First of all: from here on an intervention is meant for this owner. A worker goes on with what was asked of the last one.
    if inputs.parts.owner.epoch.is_none() {
        inputs.dir.inbox().discard_orders()?;
    }
    let settled = inputs.parts.host.wait_for_all(SETTLE_TIMEOUT).await;
    settled.map_err(|error| StateError::Owned {
        run: inputs.dir.facts().id.clone(),
        owner: format!("processes of an earlier ralph: {error}"),
    })?;
    Ok(inputs.dir.clear_leftovers(lock)?)
}
