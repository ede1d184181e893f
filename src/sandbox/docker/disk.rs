//! Watches the disk usage of a sandbox while its commands run. Its workspace is a directory of the host or a volume of the
//! engine, and what its container writes elsewhere is stored by the engine. No engine limits any of them.

mod free_space;
mod volume;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::sleep;

use self::free_space::{DiskMeasurement, FreeSpace};
use self::volume::VolumeChecks;
use super::exec::ContainerCommands;
use crate::text::error_chain;

/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause after a measurement is this much longer than the measurement.
const PAUSE_FACTOR: u32 = 5;
/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Watches the disk usage of one sandbox.
#[derive(Debug)]
pub(super) struct DiskWatch {
    /// The workspace; `None` if it is a volume.
    workspace: Option<PathBuf>,
    container: ContainerCommands,
    /// Where the engine stores its containers, if this host can see it.
    engine_dir: Option<PathBuf>,
    /// In bytes.
    limit: Option<u64>,
    measured: Arc<Mutex<Option<DiskMeasurement>>>,
    volume: VolumeChecks,
}

impl DiskWatch {
    pub(super) fn new(
        workspace: Option<PathBuf>,
        container: ContainerCommands,
        engine_dir: Option<PathBuf>,
        limit: Option<u64>,
    ) -> Self {
        Self {
            workspace,
            container,
            engine_dir,
            limit,
            measured: Arc::default(),
            volume: VolumeChecks::default(),
        }
    }

    /// Returns a reason once the sandbox exceeds its limit or a disk is almost full.
    pub(super) async fn exceeded(&self) -> String {
        match &self.workspace {
            Some(workspace) => self.exceeded_in(workspace).await,
            None => self.volume.exceeded(&self.container, self.limit).await,
        }
    }

    async fn exceeded_in(&self, workspace: &Path) -> String {
        loop {
            let Some(free) = FreeSpace::query(workspace, self.engine_dir.as_deref()) else {
                // Without a workspace the command fails for that reason.
                return std::future::pending().await;
            };
            if let Some(reason) = free.shortage() {
                return reason;
            }
            let pause = match self.limit {
                Some(limit) => match self.check_limit(workspace, limit, free).await {
                    Ok(pause) => pause,
                    Err(reason) => return reason,
                },
                None => PAUSE,
            };
            sleep(pause).await;
        }
    }

    /// Returns the pause until the next check, or why the limit is exceeded. Measuring many files takes long, so it is
    /// done only if enough disk space was used since the last measurement.
    async fn check_limit(&self, workspace: &Path, limit: u64, free: FreeSpace) -> Result<Duration, String> {
        let known = *self.measured.lock().await;
        let at_most = known.and_then(|known| known.upper_bound(free, Instant::now()));
        if at_most.is_some_and(|size| size <= limit) {
            return Ok(PAUSE);
        }
        let began = Instant::now();
        match self.measure(workspace, free).await {
            Some(size) if size > limit => Err(excess(size, limit)),
            _ => Ok(PAUSE.max(began.elapsed() * PAUSE_FACTOR)),
        }
    }

    /// Measures in a task of its own: if the command ends first, the next command uses the result.
    async fn measure(&self, workspace: &Path, free: FreeSpace) -> Option<u64> {
        let mut measured = self.measured.clone().lock_owned().await;
        let (workspace, container) = (workspace.to_owned(), self.container.clone());
        let measuring = tokio::spawn(async move {
            let workspace = tokio::task::spawn_blocking(move || dir_size(&workspace));
            let (workspace, container) = tokio::join!(workspace, container_size(&container));
            let size = workspace.unwrap_or(0) + container;
            let at = Instant::now();
            *measured = Some(DiskMeasurement { size, free, at });
            size
        });
        measuring.await.ok()
    }
}

/// Why a sandbox of this size is ended.
fn excess(size: u64, limit: u64) -> String {
    format!(
        "it uses {} MB of the disk and may use {} MB",
        size >> 20,
        limit >> 20
    )
}

/// The bytes that a container wrote outside its mounts. Zero if the engine fails: that alone must not end a command.
async fn container_size(container: &ContainerCommands) -> u64 {
    let size = container.engine.container_size(&container.container).await;
    size.unwrap_or_else(|error| {
        tracing::warn!(error = %error_chain(&error), container = container.container, "cannot measure the size of a container");
        0
    })
}

/// The bytes on disk of everything below a directory. Unreadable files count as empty. The agent decides how deep the tree
/// is: no directory stays open while those below it are measured, and the stack does not grow.
fn dir_size(dir: &Path) -> u64 {
    let (mut size, mut path) = (0, dir.to_owned());
    // The subdirectories that are not measured yet, of each directory from the first one to `path`.
    let mut left = vec![measure_entries(&path, &mut size)];
    while let Some(names) = left.last_mut() {
        if let Some(name) = names.pop() {
            path.push(name);
            left.push(measure_entries(&path, &mut size));
        } else {
            left.pop();
            path.pop();
        }
    }
    size
}

/// Adds the bytes on disk of the entries of a directory, without what is below them. Returns the names of its
/// subdirectories.
fn measure_entries(dir: &Path, size: &mut u64) -> Vec<OsString> {
    let mut subdirectories = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        // Does not follow links.
        let Ok(metadata) = entry.metadata() else { continue };
        *size += metadata.blocks() * BLOCK_BYTES;
        if metadata.is_dir() {
            subdirectories.push(entry.file_name());
        }
    }
    subdirectories
}

#[cfg(test)]
mod tests {
    use super::super::super::files::remove_all;
    use super::*;

    const MEGABYTE: u64 = 1 << 20;

    #[test]
    fn files_count_and_links_are_not_followed() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("large"), vec![1; 8 << 20]).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), vec![1; 2 << 20]).unwrap();
        let measured = dir_size(dir.path());
        assert!((2 * MEGABYTE..3 * MEGABYTE).contains(&measured), "{measured}");
    }

    #[test]
    fn a_deep_tree_needs_no_deep_stack() {
        let dir = tempfile::tempdir().unwrap();
        let mut deepest = dir.path().to_owned();
        for _ in 0..1500 {
            deepest.push("d");
            fs::create_dir(&deepest).unwrap();
        }
        fs::write(deepest.join("file"), vec![1; 1 << 20]).unwrap();
        let path = dir.path().to_owned();
        let measuring = std::thread::Builder::new().stack_size(128 << 10);
        let measured = measuring.spawn(move || dir_size(&path)).unwrap().join();
        remove_all(&dir.path().join("d")).unwrap();
        assert!(measured.unwrap() >= MEGABYTE);
    }
}
