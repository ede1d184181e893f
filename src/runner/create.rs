//! New runs: from a task, or adopted from another host's checkpoint.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::id::RunId;
use crate::scm::{self, CheckpointContent, Checkpoints, Repository, StateFile, StateRemote};
use crate::secret::Redactor;
use crate::state::{RUN_FORMAT, RunDir, RunFacts, Runs, StateError, to_json};
use crate::task::Task;

use super::{RunError, StateRef};

/// What a new run is made from.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// When the run is created, by the clock of the caller.
    pub created: Timestamp,
    /// The text of the task.
    pub task: String,
    /// The first part of the branch name.
    pub branch_prefix: String,
    /// The whole branch name, in place of one that is made from the task.
    pub branch: Option<String>,
    /// Whether this run goes on with a branch of that name, which an earlier run pushed.
    pub is_branch_own: bool,
    /// Branches that are taken elsewhere, such as on the forge.
    pub taken_branches: Vec<String>,
    /// The directory whose configuration the run started with; a resume reads it again.
    pub project: Option<PathBuf>,
    /// Settings given on the command line, which a resume keeps.
    pub overrides: Vec<(String, String)>,
    /// The script of a scripted model.
    pub script: Option<String>,
    /// The issue that the task was made from.
    pub issue: Option<u64>,
}

/// Creates a run of a task in a repository, and reserves its branch there.
pub async fn create(
    runs: &Runs,
    repo: &Repository,
    redactor: &Redactor,
    new: NewRun,
) -> Result<RunDir, RunError> {
    repo.check_writable()?;
    let text = redactor.redact(&new.task);
    let task = Task::parse(&text)?;
    let base_branch = match &task.frontmatter.base_branch {
        Some(branch) => Some(branch.to_string()),
        None => repo.head_branch().await?,
    };
    let base = match &base_branch {
        Some(branch) => repo.resolve_branch(branch).await?,
        None => repo.resolve("HEAD").await?,
    };
    let name = new
        .branch
        .unwrap_or_else(|| branch_name(&task, new.branch_prefix));
    let mut taken = taken_branches(runs, repo)?;
    if new.is_branch_own {
        taken.retain(|branch| *branch != name);
    }
    taken.extend(new.taken_branches);
    let branch = scm::reserve_branch(repo, &name, new.is_branch_own, &taken, &base).await?;
    let overrides = new.overrides.into_iter();
    let facts = RunFacts {
        format: RUN_FORMAT,
        id: new.id,
        created: new.created,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        repository: repo.common_dir().to_owned(),
        task: text,
        base,
        base_branch,
        branch,
        project: new.project,
        overrides: overrides
            .map(|(key, value)| (key, redactor.redact(&value)))
            .collect(),
        script: new.script.map(|script| redactor.redact(&script)),
        issue: new.issue,
    };
    Ok(runs.create(facts)?)
}

/// The branch name that a task asks for.
fn branch_name(task: &Task, default_prefix: String) -> String {
    let front = &task.frontmatter;
    let prefix = front.target_branch_prefix.as_ref();
    let prefix = prefix.map_or(default_prefix, ToString::to_string);
    let slug = front.slug.as_ref();
    let slug = slug.map_or_else(|| scm::slug(task.title()), ToString::to_string);
    scm::branch_name(&prefix, front.task_id.as_str(), &slug)
}

/// The branches of all runs in this repository. Those of older versions have no reservation.
fn taken_branches(runs: &Runs, repo: &Repository) -> Result<Vec<String>, StateError> {
    let runs = runs.list()?;
    let facts = runs.iter().map(RunDir::facts);
    let here = facts.filter(|facts| facts.repository == repo.common_dir());
    Ok(here.map(|facts| facts.branch.clone()).collect())
}

/// Saves the first checkpoint of a run that waits for its first process, so that its state ref names it and another host can
/// begin it. It has no owner and no journal. Does nothing if the run has a checkpoint.
pub async fn save_new(
    repo: &Repository,
    dir: &RunDir,
    remote: Option<StateRemote>,
    now: Timestamp,
) -> Result<(), RunError> {
    let facts = dir.facts();
    let repo = repo.clone().with_scratch(dir.path());
    let checkpoints = Checkpoints::new(repo.clone(), facts.id.clone()).with_remote(remote);
    checkpoints.sync().await?;
    if checkpoints.load().await?.is_some() {
        return Ok(());
    }
    repo.pin_base(&facts.id, &facts.base).await?;
    let file = |path: &str, bytes| StateFile {
        path: path.to_owned(),
        bytes,
    };
    let files = [
        file("run.json", to_json("run.json", facts)?),
        file("ralph_task.md", facts.task.clone().into_bytes()),
    ];
    let content = CheckpointContent {
        iteration: 0,
        tip: &facts.base,
        work_tree: &repo.tree_of(&facts.base).await?,
        files: &files,
        at: now,
    };
    checkpoints.save(None, &content).await?;
    Ok(())
}

/// Takes over a run that another host started, from the state ref in the state remote or in this repository.
pub async fn adopt(
    runs: &Runs,
    repo: &Repository,
    run: &RunId,
    remote: Option<StateRemote>,
) -> Result<RunDir, RunError> {
    let checkpoints = Checkpoints::new(repo.clone(), run.clone()).with_remote(remote);
    checkpoints.sync().await?;
    let missing = || StateError::NoSuchRun {
        run: run.clone(),
        runs: runs.dir().to_owned(),
    };
    let state = StateRef::read(&checkpoints).await?.ok_or_else(missing)?;
    Ok(runs.create(RunFacts {
        repository: repo.common_dir().to_owned(),
        ..state.facts
    })?)
}
