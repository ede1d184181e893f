//! How much disk a sandbox takes, watched while its commands run: a workspace is a directory of this machine, and no
//! engine limits it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::sleep;

/// What must stay free for everybody else on this machine.
const RESERVE: u64 = 512 << 20;
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
    limit: Option<u64>,
    measured: Arc<Mutex<Option<Measured>>>,
}

/// The size of a workspace, and how much was free then. As long as little is gone since, it cannot have grown much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measured {
    size: u64,
    free: u64,
}

impl Disk {
    /// Of this workspace, which may take so many bytes.
    pub(super) fn new(workspace: PathBuf, limit: Option<u64>) -> Self {
        Self {
            workspace,
            limit,
            measured: Arc::default(),
        }
    }

    /// Returns, with the reason, when the sandbox takes more than it may or hardly anything is left.
    pub(super) async fn runs_out(&self) -> String {
        loop {
            let Some(free) = free(&self.workspace) else {
                // There is no workspace: that is told elsewhere.
                return std::future::pending().await;
            };
            if free < RESERVE {
                return format!("only {} MB of the disk are left", free >> 20);
            }
            let pause = match self.limit {
                Some(limit) => match self.exceeds(limit, free).await {
                    Ok(pause) => pause,
                    Err(reason) => return reason,
                },
                None => PAUSE,
            };
            sleep(pause).await;
        }
    }

    /// How long to wait until it is looked at again, or what is wrong. Only where enough of the disk is gone for it to
    /// matter is the workspace measured: that takes long where there are many files.
    async fn exceeds(&self, limit: u64, free: u64) -> Result<Duration, String> {
        let known = *self.measured.lock().await;
        if known.is_some_and(|known| known.size + known.free.saturating_sub(free) <= limit) {
            return Ok(PAUSE);
        }
        let (began, workspace) = (Instant::now(), self.workspace.clone());
        let mut measured = self.measured.clone().lock_owned().await;
        // To its end, also when the command that it was begun for has ended: the next one has the use of it.
        let size = tokio::task::spawn_blocking(move || {
            let size = size(&workspace);
            *measured = Some(Measured { size, free });
            size
        });
        match size.await {
            Ok(size) if size > limit => Err(format!(
                "it takes {} MB of the disk and may take {} MB",
                size >> 20,
                limit >> 20
            )),
            _ => Ok(PAUSE.max(began.elapsed() * PATIENCE)),
        }
    }
}

/// What an ordinary user may still use of the disk that a directory is on.
fn free(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
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
    use tokio::time::timeout;

    use super::*;

    const MEGABYTE: u64 = 1 << 20;

    #[tokio::test]
    async fn what_is_there_counts_and_links_lead_nowhere() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("large"), vec![1; 8 << 20]).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), vec![1; 2 << 20]).unwrap();
        let measured = size(dir.path());
        assert!((2 * MEGABYTE..3 * MEGABYTE).contains(&measured), "{measured}");

        let watch = |limit| Disk::new(dir.path().to_owned(), Some(limit));
        let reason = watch(MEGABYTE).runs_out().await;
        assert!(
            reason.contains("may take 1 MB") || reason.contains("are left"),
            "{reason}"
        );
        let enough = watch(4 * MEGABYTE);
        let ended = timeout(Duration::from_millis(500), enough.runs_out()).await;
        assert!(ended.is_err() || free(dir.path()) < Some(RESERVE), "{ended:?}");
    }

    #[tokio::test]
    async fn it_is_measured_again_only_when_enough_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path().to_owned(), Some(10 * MEGABYTE));
        let free = 1000 * MEGABYTE;
        disk.exceeds(10 * MEGABYTE, free).await.unwrap();
        let first = disk.measured.lock().await.unwrap();
        disk.exceeds(10 * MEGABYTE, free - 5 * MEGABYTE).await.unwrap();
        assert_eq!(*disk.measured.lock().await, Some(first));
        disk.exceeds(10 * MEGABYTE, free - 20 * MEGABYTE).await.unwrap();
        assert_ne!(*disk.measured.lock().await, Some(first));
    }
}
