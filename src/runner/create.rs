//! New runs: from a task, or adopted from another host's checkpoint.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::id::RunId;
use crate::scm::{self, Checkpoints, Repository};
use crate::secret::Redactor;
use crate::state::{RunDir, RunFacts, Runs, StateError};
use crate::task::Task;

use super::RunError;

/// What a new run is made from.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// When the run is created, by the clock of the caller.
    pub created: Timestamp,
    /// The text of the task.
    pub task: String,
    /// The first part of the branch name.
    pub branch_prefix: String,
    /// The directory whose configuration the run started with; a resume reads it again.
    pub project: Option<PathBuf>,
    /// Settings given on the command line, which a resume keeps.
    pub overrides: Vec<(String, String)>,
    /// The script of a scripted model.
    pub script: Option<String>,
}

/// Creates a run of a task in a repository. The repository itself is not changed yet.
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
    let branch = free_branch(runs, repo, &task, new.branch_prefix).await?;
    let overrides = new.overrides.into_iter();
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
        overrides: overrides
            .map(|(key, value)| (key, redactor.redact(&value)))
            .collect(),
        script: new.script.map(|script| redactor.redact(&script)),
    };
    Ok(runs.create(facts)?)
}

/// A branch name for the task that neither the repository nor another run uses.
async fn free_branch(
    runs: &Runs,
    repo: &Repository,
    task: &Task,
    default_prefix: String,
) -> Result<String, RunError> {
    let taken: Vec<String> = runs
        .list()?
        .iter()
        .map(RunDir::facts)
        .filter(|facts| facts.repository == repo.common_dir())
        .map(|facts| facts.branch.clone())
        .collect();
    let front = &task.frontmatter;
    let prefix = front.target_branch_prefix.as_ref();
    let prefix = prefix.map_or(default_prefix, ToString::to_string);
    let slug = front.slug.as_ref();
    let slug = slug.map_or_else(|| scm::slug(task.title()), ToString::to_string);
    let name = scm::branch_name(&prefix, front.task_id.as_str(), &slug);
    Ok(scm::free_branch(repo, &name, &taken).await?)
}

/// Takes over a run that another host started, from the state ref that was pushed to this repository.
pub async fn adopt(runs: &Runs, repo: &Repository, run: &RunId) -> Result<RunDir, RunError> {
    let checkpoints = Checkpoints::new(repo.clone(), run.clone());
    let missing = || StateError::NoSuchRun {
        run: run.clone(),
        runs: runs.dir().to_owned(),
    };
    let checkpoint = checkpoints.load().await?.ok_or_else(missing)?;
    let bytes = checkpoints.file(&checkpoint.commit, "run.json").await?;
    let facts: RunFacts =
        serde_json::from_slice(&bytes.ok_or_else(missing)?).map_err(StateError::corrupt("run.json"))?;
    Ok(runs.create(RunFacts {
        repository: repo.common_dir().to_owned(),
        ..facts
    })?)
}
