//! Changes of the list of runs, for clients that show it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use axum::extract::ws::Utf8Bytes;
use serde_json::json;
use tokio::sync::broadcast;

use crate::assembly::RunStatus;
use crate::id::RunId;
use crate::state::{RunDir, Runs};

/// How often the directories of the runs are looked at, while someone watches.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How many changes a client may be behind.
const BEHIND: usize = 1024;

/// What shows that a run changed: the length and the time of its journal, and whether a process works on it.
type RunMark = (u64, Option<SystemTime>, bool);

/// Reports to clients which runs changed: `{"topic": "runs", "run": .., "status": ..}`, with `null` for a run that is gone.
pub(super) struct RunsTopic {
    runs: Runs,
    news: broadcast::Sender<Utf8Bytes>,
    is_followed: Arc<AtomicBool>,
}

impl RunsTopic {
    pub(super) fn new(runs: Runs) -> Self {
        Self {
            runs,
            news: broadcast::Sender::new(BEHIND),
            is_followed: Arc::default(),
        }
    }

    /// Changes from now on. The runs are looked at as long as someone listens.
    pub(super) async fn subscribe(&self) -> broadcast::Receiver<Utf8Bytes> {
        let receiver = self.news.subscribe();
        if !self.is_followed.swap(true, Ordering::SeqCst) {
            let (runs, news, flag) = (self.runs.clone(), self.news.clone(), self.is_followed.clone());
            let looked = runs.clone();
            let known = tokio::task::spawn_blocking(move || look(&looked, None)).await;
            let known = known.ok().map(|(marks, _)| marks);
            tokio::spawn(follow(runs, news, flag, known));
        }
        receiver
    }
}

async fn follow(
    runs: Runs,
    news: broadcast::Sender<Utf8Bytes>,
    is_followed: Arc<AtomicBool>,
    mut known: Option<HashMap<RunId, RunMark>>,
) {
    loop {
        if news.receiver_count() == 0 {
            is_followed.store(false, Ordering::SeqCst);
            // A client may have come between the two.
            if news.receiver_count() == 0 || is_followed.swap(true, Ordering::SeqCst) {
                return;
            }
        }
        let (looked, before) = (runs.clone(), known.take());
        let found = tokio::task::spawn_blocking(move || look(&looked, before)).await;
        let Ok((now, changes)) = found else {
            is_followed.store(false, Ordering::SeqCst);
            return;
        };
        known = Some(now);
        for change in changes {
            // Fails only if the last listener left.
            let _ = news.send(change);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The marks of all runs, and a message for each run that changed since `before`.
fn look(runs: &Runs, before: Option<HashMap<RunId, RunMark>>) -> (HashMap<RunId, RunMark>, Vec<Utf8Bytes>) {
    let listed = runs.list().unwrap_or_default();
    let marks: HashMap<RunId, RunMark> = listed
        .iter()
        .map(|run| (run.facts().id.clone(), mark(run)))
        .collect();
    let Some(before) = before else {
        return (marks, Vec::new());
    };
    let mut changes = Vec::new();
    for run in &listed {
        let id = &run.facts().id;
        if marks.get(id) != before.get(id)
            && let Ok(status) = RunStatus::new(run)
        {
            changes.push(message(id, &json!(status)));
        }
    }
    let gone = before.keys().filter(|id| !marks.contains_key(*id));
    changes.extend(gone.map(|id| message(id, &json!(null))));
    (marks, changes)
}

fn mark(run: &RunDir) -> RunMark {
    let journal = std::fs::metadata(run.journal_file()).ok();
    let is_live = run.holder().is_ok_and(|holder| holder.is_some());
    match journal {
        Some(journal) => (journal.len(), journal.modified().ok(), is_live),
        None => (0, None, is_live),
    }
}

fn message(run: &RunId, status: &serde_json::Value) -> Utf8Bytes {
    json!({"topic": "runs", "run": run, "status": status})
        .to_string()
        .into()
}
