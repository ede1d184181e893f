//! The files of events that clients read: those of run directories, and copies of what workers mirrored into the store.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::assembly::AssemblyError;
use crate::id::RunId;
use crate::state::{RunDir, StateError};
use crate::store::{EventPosition, Store};

/// How often the store is asked for more events of a run. Workers mirror them as often.
const COPY_INTERVAL: Duration = Duration::from_secs(1);

/// How many events are copied at once.
const COPIED_AT_ONCE: u32 = 500;

/// The events of a run in a file, one on each line.
#[derive(Clone)]
pub(super) struct WatchedLog {
    pub(super) run: RunId,
    pub(super) path: PathBuf,
    /// Where more events come from; `None` for the file of a run directory.
    mirror: Option<Arc<MirroredEvents>>,
}

/// The events of a run in the store.
struct MirroredEvents {
    store: Store,
    copied: Mutex<CopiedEvents>,
}

#[derive(Default)]
struct CopiedEvents {
    last: EventPosition,
    looked: Option<Instant>,
}

impl WatchedLog {
    /// The events in a directory of this host.
    pub(super) fn of_dir(run: &RunDir) -> Self {
        Self {
            run: run.facts().id.clone(),
            path: run.events_file(),
            mirror: None,
        }
    }

    /// Copies what the store has more of the events, at most once a second.
    pub(super) async fn update(&self) -> Result<(), AssemblyError> {
        let Some(mirror) = &self.mirror else {
            return Ok(());
        };
        let mut copied = mirror.copied.lock().await;
        if copied
            .looked
            .is_some_and(|looked| looked.elapsed() < COPY_INTERVAL)
        {
            return Ok(());
        }
        // Also if the store does not answer.
        copied.looked = Some(Instant::now());
        loop {
            let events = mirror
                .store
                .events(&self.run, copied.last, COPIED_AT_ONCE)
                .await?;
            let Some((last, _)) = events.last() else {
                return Ok(());
            };
            let lines: Vec<&str> = events.iter().map(|(_, event)| event.as_str()).collect();
            append(&self.path, &format!("{}\n", lines.join("\n")))?;
            copied.last = *last;
        }
    }
}

fn append(path: &Path, lines: &str) -> Result<(), StateError> {
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).open(path);
    let written = opened.and_then(|mut file| {
        let length = file.metadata()?.len();
        let written = file.write_all(lines.as_bytes());
        if written.is_err() {
            // The next copy begins with the same events.
            file.set_len(length)?;
        }
        written
    });
    written.map_err(StateError::io("write", path))
}

/// The copies of this process. Events are only added at the end, so those of another process have the same ids.
pub(super) struct MirroredLogs {
    dir: TempDir,
    logs: std::sync::Mutex<HashMap<RunId, WatchedLog>>,
}

impl MirroredLogs {
    pub(super) fn new() -> Result<Self, AssemblyError> {
        let dir = tempfile::tempdir();
        let dir =
            dir.map_err(|error| AssemblyError::runtime(format!("cannot create a directory: {error}")))?;
        Ok(Self {
            dir,
            logs: std::sync::Mutex::default(),
        })
    }

    /// The copy of the events of a run. It has none before its first update.
    pub(super) fn open(&self, store: &Store, run: &RunId) -> WatchedLog {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || WatchedLog {
            run: run.clone(),
            path: self.dir.path().join(run.as_str()),
            mirror: Some(Arc::new(MirroredEvents {
                store: store.clone(),
                copied: Mutex::default(),
            })),
        };
        logs.entry(run.clone()).or_insert_with(new).clone()
    }
}
