//! Removes runs whole: sandbox, refs and directory.

use std::time::Duration;

use crate::sandbox::RemovalScope;
use crate::scm::{self, Repository, StateRemote};
use crate::state::RunDir;
use crate::text::error_chain;

use super::{AssemblyError, RunControl, provider};

impl RunControl {
    /// Removes a run at rest: its sandbox, its refs in the repository and its directory. Its branch stays.
    pub async fn remove(&self, run: &RunDir) -> Result<(), AssemblyError> {
        let surroundings = &self.context.surroundings;
        let lock = run.lock(&surroundings.owner())?;
        let facts = run.facts();
        let config = self.configuration(run)?;
        let provider = provider::create_provider(&self.context, &config)?;
        for listed in provider.list().await? {
            if listed.run.as_ref() == Some(&facts.id) {
                provider.remove(&listed.id, RemovalScope::Any).await?;
            }
        }
        // The user may have removed the repository before.
        if facts.repository.exists() {
            let repository = Repository::open(surroundings.host(), &facts.repository).await?;
            if let Some(url) = config.settings.git.state_remote {
                let host = surroundings.builder_host();
                StateRemote { url, host }.remove(&repository, &facts.id).await?;
            }
            repository.remove_run_refs(&facts.id).await?;
            scm::release_branch(&repository, &facts.branch).await?;
        }
        Ok(surroundings.runs()?.remove(run, &lock)?)
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
