//! One owner per run. The kernel releases the lock when the owner exits, however it exits.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::id::RunId;

use super::{StateError, if_exists, to_json, write_atomically};

/// How long to wait for the lock of an owner that is gone. A process that it forked shares the lock until it calls `exec`,
/// which on a busy host may happen after the owner was killed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the lock is tried.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// The file in the run directory that names the owner.
const OWNER_FILE: &str = "owner.json";

/// The process that works on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOwner {
    /// The name of the host.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// The epoch of its claim in the queue. A higher one takes the run over at once. `None` without a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

impl RunOwner {
    /// This process, on the host of that name. The name distinguishes hosts that share a run's state ref.
    pub fn this_process(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            pid: std::process::id(),
            epoch: None,
        }
    }

    /// The same process with a claim of this epoch.
    #[must_use]
    pub fn with_epoch(self, epoch: Option<u64>) -> Self {
        Self { epoch, ..self }
    }

    /// Whether the process has certainly exited. Only known on its own host.
    fn is_gone(&self, host: &str) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let lives = pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH));
        self.host == host && !lives
    }
}

impl std::fmt::Display for RunOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)?;
        self.epoch.map_or(Ok(()), |epoch| write!(f, " (epoch {epoch})"))
    }
}

/// The exclusive right to work on a run, until it is dropped or the process exits.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunLock {
    /// Takes the lock. The error names the process that holds it.
    pub fn take(dir: &Path, run: &RunId, owner: &RunOwner) -> Result<Self, StateError> {
        let path = lock_file(dir);
        let file = open(&path)?;
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(StateError::io("lock", path)(error.into()));
            }
            let holder = read_owner(dir)?;
            let gone = holder.as_ref().is_none_or(|holder| holder.is_gone(&owner.host));
            if (!gone && is_taken(&file)) || Instant::now() >= deadline {
                return Err(StateError::Owned {
                    run: run.clone(),
                    owner: holder.map_or("another process".to_owned(), |holder| holder.to_string()),
                });
            }
            thread::sleep(RETRY_INTERVAL);
        }
        let owner_file = dir.join(OWNER_FILE);
        write_atomically(&owner_file, &to_json(&owner_file, owner)?)?;
        Ok(Self { _file: file })
    }

    /// The owner of a run that is being worked on.
    pub fn holder(dir: &Path) -> Result<Option<RunOwner>, StateError> {
        let path = lock_file(dir);
        if !path.exists() {
            return Ok(None);
        }
        let file = open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(Errno::WOULDBLOCK) => read_owner(dir),
            Err(error) => Err(StateError::io("lock", path)(error.into())),
        }
    }
}

/// The file that is locked in the directory of a run.
pub(super) fn lock_file(dir: &Path) -> PathBuf {
    dir.join("lock")
}

/// Whether a process works on the run. One that only looks, as [`RunLock::holder`] does, has a shared lock for a moment.
fn is_taken(file: &File) -> bool {
    let taken = flock(file, FlockOperation::NonBlockingLockShared).is_err();
    let _ = flock(file, FlockOperation::NonBlockingUnlock);
    taken
}

fn open(path: &Path) -> Result<File, StateError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(StateError::io("open", path))
}

/// The process that took the lock last; `None` if it has not written its name yet.
pub(super) fn read_owner(dir: &Path) -> Result<Option<RunOwner>, StateError> {
    let path = dir.join(OWNER_FILE);
    let bytes = if_exists(fs::read(&path)).map_err(StateError::io("read", &path))?;
    let owner = bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose();
    owner.map_err(StateError::corrupt(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::random();
        let owner = RunOwner {
            host: "here".into(),
            pid: std::process::id(),
            epoch: None,
        };
        let lock = RunLock::take(dir.path(), &run, &owner).unwrap();
        assert_eq!(RunLock::holder(dir.path()).unwrap(), Some(owner.clone()));
        let refused = RunLock::take(dir.path(), &run, &owner).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("process {} on here", owner.pid)),
            "{refused}"
        );
        drop(lock);
        assert_eq!(RunLock::holder(dir.path()).unwrap(), None);
        RunLock::take(dir.path(), &run, &owner).unwrap();
    }

    #[test]
    fn a_look_at_the_lock_keeps_no_owner_out() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::random();
        let owner = RunOwner::this_process("here");
        drop(RunLock::take(dir.path(), &run, &owner).unwrap());
        let looking = open(&lock_file(dir.path())).unwrap();
        flock(&looking, FlockOperation::NonBlockingLockShared).unwrap();
        let look = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(looking);
        });
        RunLock::take(dir.path(), &run, &owner).unwrap();
        look.join().unwrap();
    }

    #[test]
    fn the_lock_of_an_owner_that_is_gone_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::random();
        let owner = |pid| RunOwner {
            host: "here".into(),
            pid,
            epoch: None,
        };
        let held = RunLock::take(dir.path(), &run, &owner(i32::MAX.unsigned_abs())).unwrap();
        let started = Instant::now();
        let let_go = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(held);
        });
        RunLock::take(dir.path(), &run, &owner(std::process::id())).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(100));
        let_go.join().unwrap();
    }
}
