//! Keeps the index of runs in step with the run directories of this host, and reports changes to clients.
//!
//! Other processes work on runs, and write no index. So all runs are looked at again and again, which costs one `stat` of the
//! journal for a run that did not change; and the runs of a page before it is shown.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::ws::Utf8Bytes;
use serde_json::json;
use tokio::sync::{Mutex, OwnedMutexGuard, broadcast};

use crate::assembly::store::{gone_runs, indexed_run_with};
use crate::assembly::{AssemblyError, Surroundings};
use crate::id::RunId;
use crate::state::{RunLock, Runs, StateError, entries_of};
use crate::store::{IndexedRun, Store};

use super::journals::Journals;
use super::run_list::RunListEntry;

/// How often all runs are looked at: at most so often, and for at most this part of the time.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const LOOK_SHARE: u32 = 20;

/// How many changes a client may be behind.
const BEHIND: usize = 1024;

/// How many rows are written at once. Workers wait for the writer of SQLite.
const WRITTEN_AT_ONCE: usize = 500;

/// What shows that a run changed: the length and the time of its journal, and whether a process works on it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RunMark {
    /// `None` before the run started.
    journal: Option<(u64, SystemTime)>,
    is_live: bool,
    is_gone: bool,
}

#[derive(Default)]
struct KnownRuns {
    /// When a run was created or removed last, at the last look at all of them.
    dir_changed: Option<SystemTime>,
    marks: HashMap<RunId, RunMark>,
}

/// What a look found.
#[derive(Default)]
struct ChangedRuns {
    /// The new marks. They count once the rows are written: a look that is cut off is made again.
    marks: Vec<(RunId, RunMark)>,
    rows: Vec<IndexedRun>,
    gone: Vec<RunId>,
}

/// The index of the runs of this host. Clients get `{"topic": "runs", "run": .., "status": ..}` for each change, with `null`
/// for a run that is gone.
pub(super) struct RunIndex {
    surroundings: Surroundings,
    runs: Runs,
    store: Store,
    journals: Arc<Journals>,
    known: Arc<Mutex<KnownRuns>>,
    news: broadcast::Sender<Utf8Bytes>,
}

impl RunIndex {
    pub(super) fn new(
        surroundings: Surroundings,
        store: Store,
        journals: Arc<Journals>,
    ) -> Result<Self, AssemblyError> {
        Ok(Self {
            runs: surroundings.runs()?,
            surroundings,
            store,
            journals,
            known: Arc::default(),
            news: broadcast::Sender::new(BEHIND),
        })
    }

    /// Changes from now on.
    pub(super) async fn subscribe(&self) -> Result<broadcast::Receiver<Utf8Bytes>, AssemblyError> {
        let receiver = self.news.subscribe();
        self.look_for_new().await?;
        Ok(receiver)
    }

    /// Looks at all runs if one was created or removed since the last time.
    pub(super) async fn look_for_new(&self) -> Result<(), AssemblyError> {
        let known = self.known.clone().lock_owned().await;
        let changed = std::fs::metadata(self.runs.dir()).and_then(|dir| dir.modified());
        if known.dir_changed.is_some() && known.dir_changed == changed.ok() {
            return Ok(());
        }
        self.look(known).await
    }

    /// Looks at all runs of this host.
    async fn look(&self, known: OwnedMutexGuard<KnownRuns>) -> Result<(), AssemblyError> {
        let is_first = known.dir_changed.is_none();
        if is_first {
            for run in gone_runs(&self.surroundings, &self.store).await? {
                self.store
                    .unindex_run(&run, &self.surroundings.owner().host)
                    .await?;
            }
        }
        let runs = self.runs.clone();
        let list = move |known: &mut KnownRuns| -> Result<Vec<RunId>, StateError> {
            // First the time: a run that is created meanwhile is found by the next look.
            known.dir_changed = std::fs::metadata(runs.dir()).and_then(|dir| dir.modified()).ok();
            let names = entries_of(runs.dir())?;
            let names = names.iter().filter_map(|path| path.file_name()?.to_str());
            let mut found: Vec<RunId> = names.filter_map(|name| RunId::parse(name).ok()).collect();
            let removed: Vec<RunId> = known
                .marks
                .keys()
                .filter(|run| !runs.dir().join(run.as_str()).exists())
                .cloned()
                .collect();
            found.extend(removed);
            Ok(found)
        };
        self.update(known, list, is_first).await?;
        Ok(())
    }

    /// Looks at these runs. Returns whether one changed.
    pub(super) async fn refresh(&self, runs: Vec<RunId>) -> Result<bool, AssemblyError> {
        let known = self.known.clone().lock_owned().await;
        self.update(known, move |_| Ok(runs), false).await
    }

    /// Reads the runs again that changed, writes their rows and reports them. Returns whether there was one.
    async fn update(
        &self,
        mut known: OwnedMutexGuard<KnownRuns>,
        list: impl FnOnce(&mut KnownRuns) -> Result<Vec<RunId>, StateError> + Send + 'static,
        is_first: bool,
    ) -> Result<bool, AssemblyError> {
        let (runs, surroundings, journals) = (
            self.runs.clone(),
            self.surroundings.clone(),
            self.journals.clone(),
        );
        let looked = tokio::task::spawn_blocking(move || {
            let listed = list(&mut known)?;
            let changed = changed_runs(&known, &runs, &surroundings, &journals, listed);
            Ok::<_, StateError>((known, changed))
        });
        let looked = looked.await;
        let (mut known, changed) =
            looked.map_err(|error| AssemblyError::runtime(format!("cannot look at the runs: {error}")))??;
        for rows in changed.rows.chunks(WRITTEN_AT_ONCE) {
            self.store.index_runs(rows).await?;
        }
        let host = self.surroundings.owner().host;
        for run in &changed.gone {
            self.store.unindex_run(run, &host).await?;
        }
        known.marks.extend(changed.marks);
        known.marks.retain(|run, _| !changed.gone.contains(run));
        let any = !changed.rows.is_empty() || !changed.gone.is_empty();
        if !is_first && self.news.receiver_count() > 0 {
            for run in changed.rows.iter().map(|row| &row.id).chain(&changed.gone) {
                self.announce(run).await?;
            }
        }
        Ok(any)
    }

    /// Reports a run to clients as the index has it.
    pub(super) async fn announce(&self, run: &RunId) -> Result<(), AssemblyError> {
        let status = self.store.listed_run(run).await?.map(RunListEntry::new);
        let message = json!({"topic": "runs", "run": run, "status": status});
        // Fails only if no client listens.
        let _ = self.news.send(message.to_string().into());
        Ok(())
    }

    /// Reports a run after a change that is made, whatever comes of the report.
    pub(super) async fn announce_if_possible(&self, run: &RunId) {
        if let Err(error) = self.announce(run).await {
            tracing::warn!(%run, %error, "cannot report a change of a run");
        }
    }

    /// Looks at a run after a change that is made, whatever comes of the look.
    pub(super) async fn refresh_if_possible(&self, run: &RunId) {
        if let Err(error) = self.refresh(vec![run.clone()]).await {
            tracing::warn!(%run, %error, "cannot index a run");
        }
    }

    /// Looks at the runs until the index is dropped.
    pub(super) async fn follow(index: Weak<Self>) {
        while let Some(index) = index.upgrade() {
            let began = Instant::now();
            let known = index.known.clone().lock_owned().await;
            if let Err(error) = index.look(known).await {
                tracing::warn!(%error, "cannot update the index of runs");
            }
            drop(index);
            let pause = LOOK_INTERVAL.max(began.elapsed() * LOOK_SHARE);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Reads the runs whose mark is another one than before.
fn changed_runs(
    known: &KnownRuns,
    runs: &Runs,
    surroundings: &Surroundings,
    journals: &Journals,
    listed: Vec<RunId>,
) -> ChangedRuns {
    let mut changed = ChangedRuns::default();
    for id in listed {
        let before = known.marks.get(&id).copied();
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
                if known.marks.contains_key(&id) {
                    changed.gone.push(id);
                }
            }
            // One unreadable run must not hide the others. It is read again when it changes.
            Err(error) => {
                tracing::warn!(run = %id, %error, "cannot index the run");
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
