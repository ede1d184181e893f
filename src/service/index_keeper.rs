//! Keeps the index of runs up to date while this process works on them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::assembly::store::indexed_run;
use crate::assembly::{AssemblyError, Surroundings};
use crate::event::{Event, EventKind, EventSink};
use crate::id::RunId;
use crate::store::{IndexedRun, Store};

/// How often the runs are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// What shows that a run changed: the length of its journal, and whether a process works on it.
type RunMark = (u64, bool);

/// Writes the rows of runs whose events it gets. A row that cannot be written is tried again, and `ralph store rebuild` writes
/// the same ones.
#[derive(Clone)]
pub(crate) struct IndexKeeper {
    surroundings: Surroundings,
    store: Store,
    /// The runs that this process works on, and how they were when their row was written.
    runs: Arc<Mutex<BTreeMap<RunId, Option<RunMark>>>>,
}

impl IndexKeeper {
    pub(crate) fn new(surroundings: Surroundings, store: Store) -> Self {
        Self {
            surroundings,
            store,
            runs: Arc::default(),
        }
    }

    /// Updates rows until it is dropped.
    pub(crate) async fn keep(&self) -> Infallible {
        loop {
            self.update().await;
            sleep(INTERVAL).await;
        }
    }

    /// Writes the rows of runs that changed. A run that no process works on any more is left out from then on.
    pub(crate) async fn update(&self) {
        let known = self.lock().clone();
        for (run, before) in known {
            match self.update_run(&run, before).await {
                Ok(mark @ (_, true)) => {
                    self.lock().insert(run, Some(mark));
                }
                Ok((_, false)) => {
                    self.lock().remove(&run);
                }
                Err(error) => tracing::warn!(%run, %error, "cannot index a run; trying again"),
            }
        }
    }

    async fn update_run(&self, run: &RunId, before: Option<RunMark>) -> Result<RunMark, AssemblyError> {
        let (surroundings, id) = (self.surroundings.clone(), run.clone());
        let read = move || read(&surroundings, &id, before);
        let broken = |error: tokio::task::JoinError| AssemblyError::runtime(error.to_string());
        let (mark, row) = spawn_blocking(read).await.map_err(broken)??;
        if let Some(row) = row {
            self.store.index_run(&row).await?;
        }
        Ok(mark)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RunId, Option<RunMark>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the run is, and its row if that is new.
fn read(
    surroundings: &Surroundings,
    run: &RunId,
    before: Option<RunMark>,
) -> Result<(RunMark, Option<IndexedRun>), AssemblyError> {
    let dir = surroundings.runs()?.open(run)?;
    let length = std::fs::metadata(dir.journal_file()).map_or(0, |file| file.len());
    let mark = (length, dir.holder()?.is_some());
    let row = (before != Some(mark)).then(|| indexed_run(surroundings, &dir));
    Ok((mark, row.transpose()?))
}

impl EventSink for IndexKeeper {
    fn emit(&self, event: &Event) {
        if let EventKind::RunStarted { .. } | EventKind::RunResumed { .. } = event.kind {
            self.lock().insert(event.run.clone(), None);
        }
    }
}
