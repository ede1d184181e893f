//! Removes runs whole: sandbox, refs and directory.

use std::time::Duration;

use crate::config::Config;
use crate::id::RunId;
use crate::sandbox::RemovalScope;
use crate::scm::{self, Repository, StateRemote};
use crate::state::RunDir;
use crate::text::error_chain;

use super::{AssemblyError, RunControl, provider};

impl RunControl {
    /// Removes a run at rest: its sandbox, its refs in the repository and its directory. Its branch stays. If its configuration
    /// cannot be read, its sandbox and its ref in the state remote stay too, with a warning.
    pub async fn remove(&self, run: &RunDir) -> Result<(), AssemblyError> {
        let surroundings = &self.context.surroundings;
        let lock = run.lock(&surroundings.owner())?;
        let facts = run.facts();
        let config = self.readable_configuration(run);
        if let Some(config) = &config {
            let provider = provider::create_provider(&self.context, config)?;
            for listed in provider.list().await? {
                if listed.run.as_ref() == Some(&facts.id) {
                    provider.remove(&listed.id, RemovalScope::Any).await?;
                }
            }
        }
        // The user may have removed the repository before.
        if facts.repository.exists() {
            let repository = Repository::open(surroundings.host(), &facts.repository).await?;
            if let Some(url) = config.and_then(|config| config.settings.git.state_remote) {
                let host = surroundings.builder_host();
                StateRemote { url, host }.remove(&repository, &facts.id).await?;
            }
            repository.remove_run_refs(&facts.id).await?;
            scm::release_branch(&repository, &facts.branch).await?;
        }
        Ok(surroundings.runs()?.remove(run, &lock)?)
    }

    /// The configuration of a run, by the task it was created with if its journal cannot be read. `None` with a warning if the
    /// configuration cannot be read either.
    fn readable_configuration(&self, run: &RunDir) -> Option<Config> {
        let created_with = || self.configuration_with(run, Some(&run.facts().task));
        match self.configuration(run).or_else(|_| created_with()) {
            Ok(config) => Some(config),
            Err(error) => {
                let id = &run.facts().id;
                self.context.reporter.warn(&format!(
                    "the provider and the state remote of run `{id}` cannot be determined, so a sandbox (`ralph sandbox ls`) and \
                     a state ref there stay: {error}"
                ));
                None
            }
        }
    }

    /// Removes the directory of a run whose `run.json` cannot be read, with a warning about what stays. Returns false if there
    /// is no such run.
    pub(crate) fn remove_corrupt(&self, name: &str) -> Result<bool, AssemblyError> {
        let surroundings = &self.context.surroundings;
        let Ok(id) = RunId::parse(name) else {
            return Ok(false);
        };
        let removed = surroundings.runs()?.remove_corrupt(&id, &surroundings.owner())?;
        if let Some(why) = &removed {
            self.context.reporter.warn(&format!(
                "the provider and the repository of run `{id}` cannot be determined, so a sandbox (`ralph sandbox ls`) and refs \
                 below `refs/ralph/{id}/` stay: {}",
                error_chain(why)
            ));
        }
        Ok(removed.is_some())
    }

    /// The runs at rest in which nothing happened for this long, oldest first.
    pub fn older_than(&self, age: Duration) -> Result<Vec<RunDir>, AssemblyError> {
        let now = self.context.surroundings.now();
        let mut old = Vec::new();
        for run in self.context.surroundings.runs()?.list()? {
            let lines = match run.journal() {
                Ok(lines) => lines,
                // One unreadable run must not keep the others.
                Err(error) => {
                    let (id, reason) = (&run.facts().id, error_chain(&error));
                    let reporter = &self.context.reporter;
                    reporter.warn(&format!("left out run `{id}`: {reason}"));
                    continue;
                }
            };
            let last = lines.last().map_or(run.facts().created, |line| line.at);
            let is_old = Duration::try_from(now.duration_since(last)).is_ok_and(|rest| rest > age);
            if is_old && run.holder()?.is_none() {
                old.push(run);
            }
        }
        Ok(old)
    }
}
