//! How much disk a sandbox takes, watched while its commands run: its workspace is a directory of this machine, what its
//! container writes elsewhere is one of the engine's, and no engine limits either.

mod room;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::sleep;

use self::room::{Measured, Room};
use super::plain::Plain;

/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(200);
/// How much longer than a measurement the pause after it is.
const PATIENCE: u32 = 5;
/// What the blocks of a file are counted in.
const BLOCK: u64 = 512;

/// The disk that a sandbox takes.
#[derive(Debug)]
pub(super) struct Disk {
    workspace: PathBuf,
    container: Plain,
    /// Where the engine keeps its containers.
    engine: Option<PathBuf>,
    limit: Option<u64>,
    measured: Arc<Mutex<Option<Measured>>>,
}

impl Disk {
    /// Of this workspace, and of what this container writes elsewhere.
    pub(super) fn new(workspace: PathBuf, container: Plain) -> Self {
        Self {
            workspace,
            container,
            engine: None,
            limit: None,
            measured: Arc::default(),
        }
    }

    /// The same, when the engine keeps its containers in this directory.
    pub(super) fn kept_in(self, engine: Option<PathBuf>) -> Self {
        Self { engine, ..self }
    }

    /// The same, when it may be so many bytes.
    pub(super) fn limited_to(self, limit: Option<u64>) -> Self {
        Self { limit, ..self }
    }

    /// Returns, with the reason, when the sandbox takes more than it may or hardly anything is left.
    pub(super) async fn runs_out(&self) -> String {
        loop {
            let Some(room) = Room::of(&self.workspace, self.engine.as_deref()) else {
                // There is no workspace: that is told elsewhere.
                return std::future::pending().await;
            };
            if let Some(reason) = room.shortage() {
                return reason;
            }
            let pause = match self.limit {
                Some(limit) => match self.exceeds(limit, room).await {
                    Ok(pause) => pause,
                    Err(reason) => return reason,
                },
                None => PAUSE,
            };
            sleep(pause).await;
        }
    }

    /// How long to wait until it is looked at again, or what is wrong. Only where enough of the disk is gone for it to
    /// matter is it measured: that takes long where there are many files.
    async fn exceeds(&self, limit: u64, room: Room) -> Result<Duration, String> {
        let known = *self.measured.lock().await;
        if known.is_some_and(|known| known.most(room, Instant::now()).is_some_and(|most| most <= limit)) {
            return Ok(PAUSE);
        }
        let began = Instant::now();
        match self.measure(room).await {
            Some(size) if size > limit => Err(format!(
                "it takes {} MB of the disk and may take {} MB",
                size >> 20,
                limit >> 20
            )),
            _ => Ok(PAUSE.max(began.elapsed() * PATIENCE)),
        }
    }

    /// Measures it to the end, also when the command that this was begun for has ended: the next one has the use of it.
    async fn measure(&self, room: Room) -> Option<u64> {
        let mut measured = self.measured.clone().lock_owned().await;
        let (workspace, container) = (self.workspace.clone(), self.container.clone());
        let measuring = tokio::spawn(async move {
            let below = tokio::task::spawn_blocking(move || size(&workspace));
            let (below, beside) = tokio::join!(below, written_by(&container));
            let size = below.unwrap_or(0) + beside;
            *measured = Some(Measured::new(size, room, Instant::now()));
            size
        });
        measuring.await.ok()
    }
}

/// What a container wrote outside its mounts. An engine that does not tell is no reason to end what runs: whatever is
/// wrong with it shows elsewhere.
async fn written_by(container: &Plain) -> u64 {
    let size = container.engine.container_size(&container.container).await;
    size.unwrap_or_else(|error| {
        tracing::warn!(%error, container = container.container, "what it takes of the disk is not known");
        0
    })
}

/// What everything below a directory takes. What cannot be read, or is gone meanwhile, takes nothing.
fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        // Of the link itself, where it is one.
        let found = entry.metadata().ok()?;
        let below = if found.is_dir() { size(&entry.path()) } else { 0 };
        Some(found.blocks() * BLOCK + below)
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1 << 20;

    #[test]
    fn what_is_there_counts_and_links_lead_nowhere() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("large"), vec![1; 8 << 20]).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), vec![1; 2 << 20]).unwrap();
        let measured = size(dir.path());
        assert!((2 * MEGABYTE..3 * MEGABYTE).contains(&measured), "{measured}");
    }
}
