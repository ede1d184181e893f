//! How a run begins, and how it is taken up again: after a stop, after `kill -9`, after its sandbox was lost, or on
//! another machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::id::{ObjectId, RunId};
use crate::sandbox::{Sandbox, SandboxSpec};
use crate::scm::{self, Checkpoint, Checkpoints, Repository, SeedPack, StateFile};
use crate::secret::Redactor;
use crate::state::{
    Entry, Journal, Line, Lock, OutcomeKind, Owner, Repaired, RunDir, RunFacts, Runs, StateError, repair_log,
};
use crate::task::{CheckboxId, Task, starter};

use super::error::Halt;
use super::notebook::Notebook;
use super::report::Reporter;
use super::run::{Ended, Run, SEEN_FILE, Seen};
use super::settings::Settings;
use super::{Outcome, Parts, RunError};

/// The files of `.ralph/` at the beginning of a run.
const STARTERS: [(&str, &str); 6] = [
    ("guardrails.md", starter::GUARDRAILS),
    ("progress.md", starter::PROGRESS),
    ("notes.md", starter::NOTES),
    ("diagnostics.md", starter::DIAGNOSTICS),
    ("errors.log", starter::ERRORS_LOG),
    ("activity.log", starter::ACTIVITY_LOG),
];

/// What a new run is made from.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The task's text.
    pub task: String,
    /// The first part of the branch's name.
    pub branch_prefix: String,
    /// Settings given on the command line, which a resume keeps.
    pub overrides: Vec<(String, String)>,
    /// The script of a scripted model.
    pub script: Option<String>,
}

/// Who works on a run, and until when nobody on another machine may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lease {
    owner: Owner,
    until: Timestamp,
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
    let taken: Vec<String> = runs
        .list()?
        .iter()
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
        created: Timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        repository: repo.common_dir().to_owned(),
        task: text,
        base,
        base_branch,
        branch,
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

/// What there is of a run before anything is made for it: its files are mended and in step with its checkpoint.
pub(super) struct Found<'a> {
    dir: &'a RunDir,
    lock: Lock,
    journal: Journal,
    repo: Repository,
    checkpoints: Checkpoints,
    checkpoint: Option<Checkpoint>,
    /// The last journal line the checkpoint holds.
    saved_seq: u64,
    repaired: Vec<String>,
}

impl<'a> Found<'a> {
    /// Takes the run over, unless somebody works on it.
    pub(super) async fn look(parts: &Parts, dir: &'a RunDir) -> Result<Self, RunError> {
        let facts = dir.facts();
        let lock = dir.lock(&parts.owner)?;
        dir.inbox().forget_the_past()?;
        let repo = Repository::open(parts.host.clone(), &facts.repository).await?;
        let checkpoints = Checkpoints::new(repo.clone(), facts.id.clone());
        let (mut journal, torn) = Journal::open(&dir.journal_file())?;
        let mut repaired = Vec::from_iter(describe(&dir.journal_file(), torn));
        let logs = [
            dir.ralph_dir().join("activity.log"),
            dir.ralph_dir().join("errors.log"),
            dir.events_file(),
        ];
        for path in logs {
            repaired.extend(describe(&path, repair_log(&path)?));
        }
        let checkpoint = checkpoints.load().await?;
        let mut saved_seq = 0;
        if let Some(checkpoint) = &checkpoint {
            let lines = journal_in(&checkpoints, checkpoint).await?;
            respect_lease(&checkpoints, checkpoint, &lines, parts).await?;
            saved_seq = lines.last().map_or(0, |line| line.seq);
            if journal.catch_up(lines)? > 0 {
                repaired.push("the journal caught up with the checkpoint".to_owned());
            }
        }
        Ok(Self {
            dir,
            lock,
            journal,
            repo,
            checkpoints,
            checkpoint,
            saved_seq,
            repaired,
        })
    }

    /// How the run ended, when it is done: then there is nothing left to do.
    pub(super) fn done(&self) -> Option<Outcome> {
        let lines = self.journal.lines();
        let done = |line: &Line| {
            matches!(
                line.entry,
                Entry::Ended {
                    outcome: OutcomeKind::Done,
                    ..
                }
            )
        };
        let at = lines.iter().find(|line| done(line))?.at;
        let tip = self.journal.records().next_back()?.tip.clone();
        let ended = Ended {
            kind: OutcomeKind::Done,
            reason: "the run was done already".to_owned(),
            tip,
        };
        Some(ended.outcome(self.dir.facts(), lines, at))
    }
}

impl<'a> Run<'a> {
    /// Takes the run up: from its beginning or from its last checkpoint.
    pub(super) async fn open(
        parts: &'a Parts,
        settings: &'a Settings,
        spec: &'a SandboxSpec,
        found: Found<'a>,
    ) -> Result<Self, RunError> {
        let Found {
            dir,
            lock,
            journal,
            repo,
            checkpoints,
            checkpoint,
            saved_seq,
            repaired,
        } = found;
        let facts = dir.facts();
        let reporter = Reporter {
            sink: parts.sink.clone(),
            run: facts.id.clone(),
            clock: parts.clock.clone(),
            redactor: parts.redactor.clone(),
            iteration: None,
        };
        repo.pin_base(&facts.id, &facts.base).await?;
        let seed = SeedPack::make(&repo, &[&facts.base], &[], &dir.seed_dir()).await?;
        let tree = repo.tree_of(&facts.base).await?;
        let mut run = Self {
            task: Task::parse(&facts.task)?,
            sandbox: sandbox_for(parts, spec).await?,
            notebook: Notebook::open(dir.ralph_dir(), parts.redactor.clone()),
            ticked: BTreeSet::new(),
            tip: facts.base.clone(),
            known: vec![facts.base.clone()],
            seen: Seen::default(),
            saved: None,
            waiting: Arc::default(),
            _lock: lock,
            parts,
            settings,
            spec,
            dir,
            journal,
            repo,
            checkpoints,
            reporter,
            seed,
            tree,
            saved_seq,
        };
        let opened = match checkpoint {
            Some(checkpoint) => run.take_up(&checkpoint, repaired).await,
            None => run.begin().await,
        };
        match opened {
            Ok(()) => Ok(run),
            Err(Halt::Broken(error)) => Err(error),
            Err(Halt::End { reason, .. }) => Err(RunError::Refused(reason)),
        }
    }

    /// The first time: starter files and the first checkpoint.
    async fn begin(&mut self) -> Result<(), Halt> {
        for (name, text) in STARTERS {
            self.notebook.write(name, text)?;
        }
        self.note(Entry::Opened {
            owner: self.parts.owner.to_string(),
        })?;
        self.log_activity("the run began")?;
        self.lay_out().await?;
        self.checkpoint(None).await?;
        let facts = self.dir.facts();
        self.reporter.emit(EventKind::RunStarted {
            task: self.task.title().to_owned(),
            branch: facts.branch.clone(),
            provider: self.parts.provider.name().to_owned(),
            agent: self.parts.agent.name().to_owned(),
        });
        Ok(())
    }

    /// A later time: everything as the checkpoint has it.
    async fn take_up(&mut self, checkpoint: &Checkpoint, repaired: Vec<String>) -> Result<(), Halt> {
        let files = self.checkpoints.files_in(&checkpoint.commit, "ralph").await?;
        let below = |file: StateFile| Some((file.path.strip_prefix("ralph/")?.to_owned(), file.bytes));
        self.notebook
            .restore(files.into_iter().filter_map(below).collect())?;
        self.saved = Some(checkpoint.commit.clone());
        self.tip = checkpoint.tip.clone();
        self.tree = checkpoint.work_tree.clone();
        self.known.push(self.tip.clone());
        self.ticked = self.ticked_by_journal();
        self.seen = serde_json::from_str(&self.notebook.read(SEEN_FILE)?).unwrap_or_default();
        self.note(Entry::Opened {
            owner: self.parts.owner.to_string(),
        })?;
        self.log_activity(&format!(
            "the run was taken up after iteration {}",
            self.recorded()
        ))?;
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
        self.sandbox.remove(&clone).await?;
        let tip = self.tip.clone();
        self.plant(&clone, &tip).await?;
        if self.saved.is_some() {
            self.private_clone().restore(&self.tree).await?;
        }
        self.notebook.show_all()?;
        self.notebook.show(self.sandbox.as_ref(), &clone).await?;
        self.show_task().await
    }

    /// A new sandbox after the old one was lost.
    pub(super) async fn renew_sandbox(&mut self) -> Result<(), RunError> {
        self.sandbox = sandbox_for(self.parts, self.spec).await?;
        match self.lay_out().await {
            Ok(()) => Ok(()),
            Err(Halt::Broken(error)) => Err(error),
            Err(Halt::End { reason, .. }) => Err(RunError::Refused(reason)),
        }
    }

    /// The lease this owner writes into each checkpoint: long enough for the longest iteration.
    pub(super) fn lease(&self) -> Lease {
        let until = self.parts.clock.now() + self.settings.iteration_timeout + Duration::from_secs(600);
        Lease {
            owner: self.parts.owner.clone(),
            until,
        }
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

/// Refuses a run that another machine may be working on. On this machine the lock has already decided.
async fn respect_lease(
    checkpoints: &Checkpoints,
    checkpoint: &Checkpoint,
    journal: &[Line],
    parts: &Parts,
) -> Result<(), RunError> {
    let ended = journal
        .last()
        .is_some_and(|line| matches!(line.entry, Entry::Ended { .. }));
    let bytes = checkpoints.file(&checkpoint.commit, "lease.json").await?;
    let lease: Option<Lease> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    match lease {
        Some(lease) if !ended && lease.owner.host != parts.owner.host && lease.until > parts.clock.now() => {
            Err(RunError::Leased {
                owner: lease.owner.to_string(),
                until: lease.until,
            })
        }
        _ => Ok(()),
    }
}

async fn journal_in(checkpoints: &Checkpoints, checkpoint: &Checkpoint) -> Result<Vec<Line>, RunError> {
    let segments = checkpoints.files_in(&checkpoint.commit, "journal").await?;
    let text: Vec<u8> = segments.into_iter().flat_map(|file| file.bytes).collect();
    Ok(Journal::parse(
        Path::new("journal"),
        &String::from_utf8_lossy(&text),
    )?)
}

async fn sandbox_for(parts: &Parts, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, RunError> {
    match parts.provider.reopen(spec).await? {
        Some(sandbox) => {
            sandbox.start().await?;
            Ok(sandbox)
        }
        None => Ok(parts.provider.create(spec).await?),
    }
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
