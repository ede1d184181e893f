//! How a run begins, and how it is taken up again: after a stop, after `kill -9`, after its sandbox was lost, or on
//! another machine.

use std::collections::BTreeSet;
use std::mem::take;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::event::EventKind;
use crate::id::{ObjectId, RunId};
use crate::sandbox::{Sandbox, SandboxSpec};
use crate::scm::{self, Checkpoint, Checkpoints, Repository, SeedPack};
use crate::secret::Redactor;
use crate::state::{JournalEntry, RunDir, RunFacts, RunLock, Runs, StateError};
use crate::task::{CheckboxId, Task, starter};

use super::error::Halt;
use super::notebook::Notebook;
use super::past::{Archive, Past, restore};
use super::preflight::Preflight;
use super::report::Reporter;
use super::run::{Run, SEEN_FILE, Seen};
use super::settings::RunSettings;
use super::{RunError, RunOutcome, RunParts};

/// The files of `.ralph/` at the beginning of a run.
const STARTERS: [(&str, &str); 6] = [
    ("guardrails.md", starter::GUARDRAILS),
    ("progress.md", starter::PROGRESS),
    ("notes.md", starter::NOTES),
    ("diagnostics.md", starter::DIAGNOSTICS),
    ("errors.log", starter::ERRORS_LOG),
    ("activity.log", starter::ACTIVITY_LOG),
];

/// How long processes of an earlier owner are waited for.
const LONGEST_SETTLING: Duration = Duration::from_secs(30);

/// What a new run is made from.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// When the run is created, by the clock of the caller.
    pub created: Timestamp,
    /// The task's text.
    pub task: String,
    /// The first part of the branch's name.
    pub branch_prefix: String,
    /// The directory whose configuration the run was begun with; a resume reads it again.
    pub project: Option<PathBuf>,
    /// Settings given on the command line, which a resume keeps.
    pub overrides: Vec<(String, String)>,
    /// The script of a scripted model.
    pub script: Option<String>,
}

/// A run in the hands of its owner, or one for which nothing is left to do.
pub(super) enum Taken<'a> {
    /// It goes on.
    Up(Box<Run<'a>>),
    /// It was done already.
    Done(RunOutcome),
}

/// What an owner holds of a run before there is a sandbox.
struct Held {
    task: Task,
    lock: RunLock,
    repo: Repository,
    checkpoints: Checkpoints,
}

/// Makes a new run of a task in a repository. Nothing of the repository is touched yet.
pub async fn create(
    runs: &Runs,
    repo: &Repository,
    redactor: &Redactor,
    new: NewRun,
) -> Result<RunDir, RunError> {
    let text = redactor.redact(&new.task);
    let task = Task::parse(&text)?;
    let base_branch = match &task.frontmatter.base_branch {
        Some(branch) => Some(branch.to_string()),
        None => repo.head_branch().await?,
    };
    let base = repo.resolve(base_branch.as_deref().unwrap_or("HEAD")).await?;
    let here = |run: &&RunDir| run.facts().repository == repo.common_dir();
    let known = runs.list()?;
    let taken: Vec<String> = known
        .iter()
        .filter(here)
        .map(|run| run.facts().branch.clone())
        .collect();
    let front = &task.frontmatter;
    let prefix = front
        .target_branch_prefix
        .as_ref()
        .map_or(new.branch_prefix, ToString::to_string);
    let slug = front
        .slug
        .as_ref()
        .map_or_else(|| scm::slug(task.title()), ToString::to_string);
    let branch = scm::free_branch(
        repo,
        &scm::branch_name(&prefix, front.task_id.as_str(), &slug),
        &taken,
    )
    .await?;
    let facts = RunFacts {
        id: RunId::random(),
        created: new.created,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        repository: repo.common_dir().to_owned(),
        task: text,
        base,
        base_branch,
        branch,
        project: new.project,
        overrides: new
            .overrides
            .into_iter()
            .map(|(key, value)| (key, redactor.redact(&value)))
            .collect(),
        script: new.script.map(|script| redactor.redact(&script)),
    };
    Ok(runs.create(facts)?)
}

/// Takes over a run that another machine began, from the state ref that was pushed here.
pub async fn adopt(runs: &Runs, repo: &Repository, run: &RunId) -> Result<RunDir, RunError> {
    let checkpoints = Checkpoints::new(repo.clone(), run.clone());
    let missing = || StateError::NoSuchRun {
        run: run.clone(),
        runs: runs.dir().to_owned(),
    };
    let checkpoint = checkpoints.load().await?.ok_or_else(missing)?;
    let bytes = checkpoints
        .file(&checkpoint.commit, "run.json")
        .await?
        .ok_or_else(missing)?;
    let facts: RunFacts = serde_json::from_slice(&bytes).map_err(|source| StateError::Corrupt {
        path: "run.json".into(),
        line: 1,
        source,
    })?;
    Ok(runs.create(RunFacts {
        repository: repo.common_dir().to_owned(),
        ..facts
    })?)
}

impl<'a> Run<'a> {
    /// Takes the run up: from its beginning or from its last checkpoint.
    pub(super) async fn open(
        parts: &'a RunParts,
        settings: &'a RunSettings,
        spec: &'a SandboxSpec,
        dir: &'a RunDir,
    ) -> Result<Taken<'a>, RunError> {
        let facts = dir.facts();
        let lock = dir.lock(&parts.owner)?;
        settle(parts, dir, &lock).await?;
        let reporter = Reporter::of(parts, &facts.id);
        let repo = Repository::open(parts.host.clone(), &facts.repository).await?;
        let checkpoints = Checkpoints::new(repo.clone(), facts.id.clone());
        let mut past = Past::read(parts, dir, &checkpoints).await?;
        if let Some(checkpoint) = past.checkpoint.as_ref().filter(|_| past.is_done()) {
            let archive = Archive {
                parts,
                spec,
                dir,
                reporter,
            };
            return archive
                .conclude(&checkpoints, checkpoint, &past.journal)
                .await
                .map(Taken::Done);
        }
        let preflight = Preflight {
            parts,
            settings,
            spec,
            dir,
            reporter,
        };
        let held = Held {
            task: Task::parse(&facts.task)?,
            lock,
            repo,
            checkpoints,
        };
        if past.checkpoint.is_none() {
            preflight.reporter.emit(started(&preflight, &held.task));
        }
        let sandbox = preflight.sandbox().await;
        let sandbox = sandbox.map_err(|error| preflight.reporter.broken(error))?;
        let (checkpoint, mended) = (past.checkpoint.take(), take(&mut past.mended));
        let mut run = Self::of(&preflight, held, past, sandbox).await?;
        match checkpoint {
            Some(checkpoint) => run.take_up(&checkpoint, mended).await,
            None => run.begin(mended).await,
        }
        .map_err(|halt| match halt {
            Halt::Broken(error) => error,
            Halt::End { reason, .. } => RunError::Refused(reason),
        })?;
        Ok(Taken::Up(Box::new(run)))
    }

    /// The run in this sandbox, in which nothing is laid out yet.
    async fn of(
        preflight: &Preflight<'a>,
        held: Held,
        past: Past,
        sandbox: Box<dyn Sandbox>,
    ) -> Result<Self, RunError> {
        let Preflight {
            parts,
            settings,
            spec,
            dir,
            ref reporter,
        } = *preflight;
        let (facts, repo) = (dir.facts(), held.repo);
        repo.pin_base(&facts.id, &facts.base).await?;
        Ok(Self {
            seed: SeedPack::make(&repo, &[&facts.base], &[], &dir.seed_dir()).await?,
            tree: repo.tree_of(&facts.base).await?,
            task: held.task,
            sandbox,
            worn: false,
            notebook: Notebook::open(dir.ralph_dir(), parts.redactor.clone()),
            ticked: BTreeSet::new(),
            tip: facts.base.clone(),
            known: vec![facts.base.clone()],
            seen: Seen::default(),
            saved: None,
            saved_seq: past.saved_seq,
            waiting: Arc::default(),
            lease_until: None,
            _lock: held.lock,
            parts,
            settings,
            spec,
            dir,
            journal: past.journal,
            repo,
            checkpoints: held.checkpoints,
            reporter: reporter.clone(),
        })
    }

    /// The first time: starter files and the first checkpoint.
    async fn begin(&mut self, mended: Vec<String>) -> Result<(), Halt> {
        for what in mended {
            self.reporter.warn(format!("mended: {what}"));
        }
        for (name, text) in STARTERS {
            self.notebook.write(name, text)?;
        }
        self.note(JournalEntry::Opened {
            owner: self.parts.owner.to_string(),
        })?;
        self.log_activity("the run began")?;
        self.lay_out().await?;
        self.checkpoint(None).await?;
        let facts = self.dir.facts();
        for warning in self.repo.warnings(&facts.base).await? {
            self.reporter.warn(warning.to_string());
        }
        let brought = scm::agent_settings(&self.repo, &facts.base).await?;
        if !brought.is_empty() {
            let files: Vec<String> = brought.iter().map(ToString::to_string).collect();
            self.reporter.warn(format!(
                "the repository brings settings for agents, which decide what one runs besides what it is told: {}",
                files.join(", ")
            ));
        }
        Ok(())
    }

    /// A later time: everything as the checkpoint has it, and a checkpoint of its own that says who has the run now.
    async fn take_up(&mut self, checkpoint: &Checkpoint, repaired: Vec<String>) -> Result<(), Halt> {
        restore(&mut self.notebook, &self.checkpoints, checkpoint).await?;
        self.saved = Some(checkpoint.commit.clone());
        self.tip = checkpoint.tip.clone();
        self.tree = checkpoint.work_tree.clone();
        self.known.push(self.tip.clone());
        self.ticked = self.ticked_by_journal();
        self.seen = serde_json::from_str(&self.notebook.read(SEEN_FILE)?).unwrap_or_default();
        self.note(JournalEntry::Opened {
            owner: self.parts.owner.to_string(),
        })?;
        self.settle_what_a_crash_left()?;
        self.log_activity(&format!(
            "the run was taken up after iteration {}",
            self.recorded()
        ))?;
        self.checkpoint(None).await?;
        self.lay_out().await?;
        self.reporter.emit(EventKind::RunResumed {
            recorded: self.recorded(),
            repaired,
        });
        Ok(())
    }

    /// Makes the clone afresh from what the host has: whatever a crash left in it is gone.
    pub(super) async fn lay_out(&mut self) -> Result<(), Halt> {
        let clone = self.clone_dir();
        self.sandbox.end_processes().await?;
        self.sandbox.files().remove(&clone).await?;
        let tip = self.tip.clone();
        self.plant(&clone, &tip).await?;
        if self.saved.is_some() {
            self.private_clone().restore(&self.tree).await?;
        }
        self.notebook.show_all()?;
        self.notebook.show(self.sandbox.as_ref(), &clone).await?;
        self.show_task().await
    }

    fn ticked_by_journal(&self) -> BTreeSet<CheckboxId> {
        let ticked = self
            .journal
            .records()
            .next_back()
            .map(|record| record.ticked.clone())
            .unwrap_or_default();
        self.task
            .checkboxes
            .iter()
            .map(|one| one.id.clone())
            .filter(|id| ticked.contains(&id.to_string()))
            .collect()
    }

    /// The packs that hold all that a commit and the clone's tree reach. What the base reaches is packed once.
    pub(super) async fn packs_for(&self, commit: &ObjectId) -> Result<Vec<SeedPack>, Halt> {
        let base = &self.dir.facts().base;
        let mut packs = vec![self.seed.clone()];
        if self.saved.is_some() {
            let scratch = self.dir.seed_dir().join("since");
            let _ = std::fs::remove_dir_all(&scratch);
            packs.push(SeedPack::make(&self.repo, &[commit, &self.tree], &[base], &scratch).await?);
        }
        Ok(packs)
    }
}

fn started(preflight: &Preflight<'_>, task: &Task) -> EventKind {
    let Preflight {
        parts, settings, dir, ..
    } = preflight;
    let agent = parts.agents.for_profile(&settings.profiles.default);
    EventKind::RunStarted {
        task: task.title().to_owned(),
        branch: dir.facts().branch.clone(),
        provider: parts.provider.name().to_owned(),
        agent: agent.name().to_owned(),
    }
}

/// Clears away what an earlier owner left. Git processes that it did not live to see the end of are waited for: what
/// they still do, they do now, not while this owner works.
async fn settle(parts: &RunParts, dir: &RunDir, lock: &RunLock) -> Result<(), RunError> {
    // First of all: what a person asks from here on is asked of this owner.
    dir.inbox().forget_orders()?;
    let settled = parts.host.wait_for_all(LONGEST_SETTLING).await;
    settled.map_err(|error| StateError::Owned {
        run: dir.facts().id.clone(),
        owner: format!("what an earlier ralph started: {error}"),
    })?;
    dir.clear_leftovers(lock)?;
    Ok(())
}
