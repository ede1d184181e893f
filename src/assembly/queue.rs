//! What a person does to runs in the queue: take them out, remove them.

use crate::id::RunId;
use crate::state::RunDir;
use crate::store::{QueueState, Store};

use super::configuration::{load_quietly, project_dir};
use super::store::{has_store, open_store};
use super::{AssemblyError, RunControl};

impl RunControl {
    /// Opens the queue. Returns `None` if the project has no queue or, with a warning, if the configuration cannot be read.
    pub(crate) async fn queue(&self) -> Result<Option<Store>, AssemblyError> {
        let surroundings = &self.context.surroundings;
        let config = match load_quietly(&self.context, project_dir(surroundings.dir()), &self.given) {
            Ok(config) => config,
            Err(error) => {
                let reporter = &self.context.reporter;
                reporter.warn(&format!("the queue is left as it is: {error}"));
                return Ok(None);
            }
        };
        if !has_store(surroundings, &config)? {
            return Ok(None);
        }
        open_store(surroundings, &config).await.map(Some)
    }

    /// Takes a run out of the queue that no worker has. Returns whether there was one.
    pub(crate) async fn cancel_queued(&self, queue: &Store, run: &RunId) -> Result<bool, AssemblyError> {
        let reason = format!("{} took it out of the queue", self.asking());
        Ok(queue.cancel_queued(run, &reason).await?)
    }

    /// Like [`RunControl::remove`], and takes the run out of the queue first. An error if a worker has it.
    pub(crate) async fn remove_with_queue(
        &self,
        queue: Option<&Store>,
        run: &RunDir,
    ) -> Result<(), AssemblyError> {
        if let Some(queue) = queue {
            let id = &run.facts().id;
            queue.cancel_queued(id, "it was removed").await?;
            let row = queue.queue_row(id).await?;
            if let Some(row) = row.filter(|row| row.state == QueueState::Running) {
                // In a queue of this host alone, a run without a live process is that of a worker that was killed.
                if queue.is_shared() || run.holder()?.is_some() {
                    let worker = row.owner.unwrap_or_default();
                    return Err(AssemblyError::conflict(format!(
                        "run `{id}` is being worked on by the worker `{worker}`"
                    ))
                    .with_hint(format!("`ralph stop {id}` ends it; remove it then")));
                }
            }
        }
        self.remove(run).await
    }
}

/// Whether a run waits in the queue, or a worker has it.
pub(crate) async fn is_queued(queue: &Store, run: &RunId) -> Result<bool, AssemblyError> {
    let row = queue.queue_row(run).await?;
    Ok(row.is_some_and(|row| matches!(row.state, QueueState::Queued | QueueState::Running)))
}
