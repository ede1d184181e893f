//! Runs that are created now and worked on later, by a worker of the queue.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::id::RunId;
use crate::runner::{self, NewRun};
use crate::scm::Repository;
use crate::secret::Redactor;
use crate::state::{RunDir, StateError};

use super::builder::mirror;
use super::configuration::{GivenSettings, load_of_run, load_quietly, project_dir};
use super::ralph::RunTarget;
use super::state_remote::state_remote;
use super::{AssemblyContext, AssemblyError, RalphBuilder};

/// A run that is checked and does not exist yet.
pub(crate) struct PreparedRun {
    context: AssemblyContext,
    config: Config,
    repository: Repository,
    run: NewRun,
}

/// Where the repository of a queued run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QueuedRepository {
    /// At an address that other hosts reach too.
    Url(String),
    /// In this git directory of one host.
    Directory(PathBuf),
}

/// What a worker needs to begin a queued run, besides its state ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueuedRun {
    pub(crate) repository: QueuedRepository,
    /// The provider of its sandbox.
    pub(crate) provider: String,
    /// Whether its state ref is in a state remote, which other hosts reach too.
    #[serde(default)]
    pub(crate) has_state_remote: bool,
}

impl RalphBuilder {
    /// Checks everything about a new run that does not depend on the host that works on it: the task, the configuration and
    /// the repository. Credentials, engine and image are those of the worker.
    pub(crate) async fn prepare(mut self) -> Result<PreparedRun, AssemblyError> {
        let context = self.context()?;
        let chosen = self.choose(&context).await?;
        match chosen.target {
            RunTarget::New { repository, run } => Ok(PreparedRun {
                context,
                config: chosen.config,
                repository,
                run,
            }),
            RunTarget::Existing(dir) => {
                let id = &dir.facts().id;
                Err(AssemblyError::usage(format!("run `{id}` exists already")))
            }
        }
    }
}

impl PreparedRun {
    /// What the queue has to know about the run.
    pub(crate) async fn queued(&self) -> Result<QueuedRun, AssemblyError> {
        QueuedRun::new(&self.context, &self.config, &self.repository).await
    }

    /// Creates the run and saves its first checkpoint.
    pub(crate) async fn create(self) -> Result<RunDir, AssemblyError> {
        let surroundings = &self.context.surroundings;
        let redactor = Redactor::new(self.config.secrets());
        let remote = state_remote(&self.context, &self.config).await?;
        let dir = runner::create(&surroundings.runs()?, &self.repository, &redactor, self.run).await?;
        runner::save_new(&self.repository, &dir, remote, surroundings.now()).await?;
        Ok(dir)
    }
}

impl QueuedRun {
    async fn new(
        context: &AssemblyContext,
        config: &Config,
        repository: &Repository,
    ) -> Result<Self, AssemblyError> {
        let mirrors = context.surroundings.cache_dir()?.join("mirrors");
        let dir = repository.common_dir();
        let url = if dir.starts_with(mirrors) {
            repository.remote_url("origin").await?
        } else {
            None
        };
        Ok(Self {
            repository: url.map_or_else(
                || QueuedRepository::Directory(dir.to_owned()),
                QueuedRepository::Url,
            ),
            provider: config.provider().name().to_owned(),
            has_state_remote: config.settings.git.state_remote.is_some(),
        })
    }

    /// That of a run that exists. Saves its first checkpoint if it has none, as after a crash.
    pub(crate) async fn of_run(context: &AssemblyContext, dir: &RunDir) -> Result<Self, AssemblyError> {
        let config = load_of_run(context, dir, None, &GivenSettings::default())?;
        let repository = Repository::open(context.surroundings.host(), &dir.facts().repository).await?;
        let remote = state_remote(context, &config).await?;
        runner::save_new(&repository, dir, remote, context.surroundings.now()).await?;
        Self::new(context, &config, &repository).await
    }

    /// The directory of the run on this host. A run that this host does not know yet is taken over from its state ref.
    pub(crate) async fn open(&self, context: &AssemblyContext, run: &RunId) -> Result<RunDir, AssemblyError> {
        let runs = context.surroundings.runs()?;
        match runs.open(run) {
            Err(StateError::NoSuchRun { .. }) => {}
            found => return Ok(found?),
        }
        let project = project_dir(context.surroundings.dir());
        let config = load_quietly(context, project, &GivenSettings::default())?;
        let repository = match &self.repository {
            QueuedRepository::Directory(dir) => Repository::open(context.surroundings.host(), dir).await?,
            QueuedRepository::Url(url) => mirror(context, &config, url).await?,
        };
        let remote = state_remote(context, &config).await?;
        Ok(runner::adopt(&runs, &repository, run, remote).await?)
    }
}
