//! Keeps the index of runs in step with the run directories of this host, and reports changes.
//!
//! A process that works on a run need not have a store, so it writes no row. A service looks at all runs again and again, which
//! costs one `stat` of the journal for a run that did not change, and at the runs of a page before it is shown. A worker looks at
//! the runs that it works on.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Mutex, MutexGuard, broadcast};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::assembly::store::{gone_runs, indexed_run_with};
use crate::assembly::{AssemblyError, Surroundings};
use crate::id::RunId;
use crate::state::{RunLock, Runs, StateError, entries_of};
use crate::store::{IndexedRun, Store};
use crate::text::error_chain;

use super::journals::Journals;

/// How often all runs are looked at: at most so often, for at most this part of the time, but not less often than the longest
/// pause.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const LOOK_SHARE: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How often a worker looks at a run that it works on.
const WORK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a list waits for a look at all runs.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// How many runs are read, and their rows written, at once. A look at a few runs waits for at most so many others.
const READ_AT_ONCE: usize = 100;

/// How many changes a receiver may be behind.
const BEHIND: usize = 1024;

/// What shows that a run changed: the length and the time of its journal, and whether a process works on it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RunMark {
    /// `None` before the run started.
    journal: Option<(u64, SystemTime)>,
    is_live: bool,
    is_gone: bool,
}

/// The last look at all runs.
#[derive(Default)]
struct LastLook {
    is_done: bool,
    /// When a run was created or removed last, at that time.
    dir_changed: Option<SystemTime>,
}

/// What a look found.
#[derive(Default)]
struct ChangedRuns {
    /// The new marks. They count once the rows are written: a look that is cut off is made again.
    marks: Vec<(RunId, RunMark)>,
    rows: Vec<IndexedRun>,
    gone: Vec<RunId>,
}

/// The index of the runs of this host.
pub(crate) struct RunIndex {
    surroundings: Surroundings,
    runs: Runs,
    store: Store,
    journals: Arc<Journals>,
    /// Locked during a look at all runs.
    last_look: Mutex<LastLook>,
    /// Locked while up to [`READ_AT_ONCE`] runs are read and written: an older row must not overwrite a newer one.
    marks: Arc<Mutex<HashMap<RunId, RunMark>>>,
    changes: broadcast::Sender<RunId>,
}

impl RunIndex {
    pub(crate) fn new(surroundings: Surroundings, store: Store) -> Result<Self, AssemblyError> {
        Ok(Self {
            runs: surroundings.runs()?,
            surroundings,
            store,
            journals: Arc::default(),
            last_look: Mutex::default(),
            marks: Arc::default(),
            changes: broadcast::Sender::new(BEHIND),
        })
    }

    /// The journals of the runs, as far as they are kept.
    pub(crate) fn journals(&self) -> Arc<Journals> {
        self.journals.clone()
    }

    /// The runs whose row changes from now on, or is removed.
    pub(crate) fn changes(&self) -> broadcast::Receiver<RunId> {
        self.changes.subscribe()
    }

    /// Reports a run whose place in the queue changed.
    pub(crate) fn report(&self, run: &RunId) {
        // Fails only if there is no receiver.
        let _ = self.changes.send(run.clone());
    }

    /// Looks at all runs if one was created or removed since the last time. Waits two seconds for that at most: the look goes on
    /// in [`RunIndex::follow`].
    pub(crate) async fn look_for_new(&self) -> Result<(), AssemblyError> {
        let look = async {
            let last = self.last_look.lock().await;
            if last.is_done && last.dir_changed == dir_changed(&self.runs) {
                return Ok(());
            }
            self.look_at_all(last).await
        };
        timeout(LONGEST_WAIT, look).await.unwrap_or(Ok(()))
    }

    /// Looks at all runs.
    pub(crate) async fn look(&self) -> Result<(), AssemblyError> {
        let last = self.last_look.lock().await;
        self.look_at_all(last).await
    }

    async fn look_at_all(&self, mut last: MutexGuard<'_, LastLook>) -> Result<(), AssemblyError> {
        let is_first = !last.is_done;
        if is_first {
            for run in gone_runs(&self.surroundings, &self.store).await? {
                self.store
                    .unindex_run(&run, &self.surroundings.owner().host)
                    .await?;
            }
        }
        // First the time: a run that is created meanwhile is found by the next look.
        let dir_changed = dir_changed(&self.runs);
        let runs = self.runs.clone();
        let mut found = spawn_blocking(move || run_ids(&runs))
            .await
            .map_err(|error| broken(&error))??;
        let removed: Vec<RunId> = {
            let present: HashSet<&RunId> = found.iter().collect();
            let marks = self.marks.lock().await;
            let is_removed = |run: &&RunId| !present.contains(run);
            marks.keys().filter(is_removed).cloned().collect()
        };
        found.extend(removed);
        for some in found.chunks(READ_AT_ONCE) {
            let changed = self.update(some.to_vec()).await?;
            for run in changed.iter().filter(|_| !is_first) {
                self.report(run);
            }
        }
        *last = LastLook {
            is_done: true,
            dir_changed,
        };
        Ok(())
    }

    /// Looks at these runs. Returns whether one changed.
    pub(crate) async fn refresh(&self, runs: Vec<RunId>) -> Result<bool, AssemblyError> {
        let changed = self.update(runs).await?;
        for run in &changed {
            self.report(run);
        }
        Ok(!changed.is_empty())
    }

    /// Looks at a run after a change that is made, whatever comes of the look.
    pub(crate) async fn refresh_if_possible(&self, run: &RunId) {
        if let Err(error) = self.refresh(vec![run.clone()]).await {
            tracing::warn!(%run, error = %error_chain(&error), "cannot index a run");
        }
    }

    /// Reads the runs again that changed and writes their rows. Returns these runs.
    async fn update(&self, runs: Vec<RunId>) -> Result<Vec<RunId>, AssemblyError> {
        let marks = self.marks.clone().lock_owned().await;
        let (dirs, surroundings, journals) = (
            self.runs.clone(),
            self.surroundings.clone(),
            self.journals.clone(),
        );
        let read = spawn_blocking(move || {
            let changed = changed_runs(&marks, &dirs, &surroundings, &journals, runs);
            (marks, changed)
        });
        let (mut marks, changed) = read.await.map_err(|error| broken(&error))?;
        if !changed.rows.is_empty() {
            self.store.index_runs(&changed.rows).await?;
        }
        let host = self.surroundings.owner().host;
        for run in &changed.gone {
            self.store.unindex_run(run, &host).await?;
            marks.remove(run);
        }
        marks.extend(changed.marks);
        let rows = changed.rows.into_iter().map(|row| row.id);
        Ok(rows.chain(changed.gone).collect())
    }

    /// Looks at all runs until the index is dropped.
    pub(crate) async fn follow(index: Weak<Self>) {
        while let Some(index) = index.upgrade() {
            let began = Instant::now();
            if let Err(error) = index.look().await {
                tracing::warn!(error = %error_chain(&error), "cannot update the index of runs");
            }
            drop(index);
            sleep((began.elapsed() * LOOK_SHARE).clamp(LOOK_INTERVAL, LONGEST_PAUSE)).await;
        }
    }

    /// Looks at a run that this process works on until it is dropped.
    pub(super) async fn follow_run(&self, run: &RunId) -> Infallible {
        loop {
            self.refresh_if_possible(run).await;
            sleep(WORK_INTERVAL).await;
        }
    }
}

fn broken(error: &tokio::task::JoinError) -> AssemblyError {
    AssemblyError::runtime(format!("cannot look at the runs: {error}"))
}

/// When a run was created or removed last.
fn dir_changed(runs: &Runs) -> Option<SystemTime> {
    std::fs::metadata(runs.dir()).and_then(|dir| dir.modified()).ok()
}

/// The runs that have a directory.
fn run_ids(runs: &Runs) -> Result<Vec<RunId>, StateError> {
    let paths = entries_of(runs.dir())?;
    let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
    Ok(names.filter_map(|name| RunId::parse(name).ok()).collect())
}

/// Reads the runs whose mark is another one than before.
fn changed_runs(
    marks: &HashMap<RunId, RunMark>,
    runs: &Runs,
    surroundings: &Surroundings,
    journals: &Journals,
    listed: Vec<RunId>,
) -> ChangedRuns {
    let mut changed = ChangedRuns::default();
    for id in listed {
        let before = marks.get(&id).copied();
        let mark = mark(runs, &id, before);
        if Some(mark) == before {
            continue;
        }
        let row = runs.open(&id).map_err(AssemblyError::from).and_then(|run| {
            let row = journals.read(&run, |lines| indexed_run_with(surroundings, &run, lines));
            row.map_err(AssemblyError::from)?
        });
        match row {
            Ok(row) => {
                changed.marks.push((id, mark));
                changed.rows.push(row);
            }
            Err(_) if !runs.dir().join(id.as_str()).exists() => {
                if marks.contains_key(&id) {
                    changed.gone.push(id);
                }
            }
            // One unreadable run must not hide the others. It is read again when it changes.
            Err(error) => {
                tracing::warn!(run = %id, error = %error_chain(&error), "cannot index the run");
                changed.marks.push((id, mark));
            }
        }
    }
    changed
}

/// The mark of a run. A process that begins to work on a run writes to its journal, so the lock is only tried if the journal
/// changed, or if a process worked on the run the last time.
fn mark(runs: &Runs, id: &RunId, before: Option<RunMark>) -> RunMark {
    let dir = runs.dir().join(id.as_str());
    let journal = std::fs::metadata(dir.join("journal.jsonl")).ok();
    let journal = journal.and_then(|file| Some((file.len(), file.modified().ok()?)));
    let is_same = before.is_some_and(|before| before.journal == journal && !before.is_live);
    let is_live = !is_same && RunLock::holder(&dir).is_ok_and(|holder| holder.is_some());
    RunMark {
        journal,
        is_live,
        is_gone: journal.is_none() && !dir.exists(),
    }
}
