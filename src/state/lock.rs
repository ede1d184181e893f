//! One owner per run. The kernel lets go of the lock when the owner dies, however it dies.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::id::RunId;

use super::{StateError, write_atomically};

/// How long to wait for the lock of an owner that is gone. A process it was about to start shares the lock until it
/// becomes its own program, and on a busy machine it may get there after its parent was killed.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// How long to wait before the lock is tried again.
const PAUSE: Duration = Duration::from_millis(2);

/// Who works on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOwner {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
}

impl RunOwner {
    /// This process, on the machine of that name. The name tells machines apart that share a run's state ref.
    pub fn this_process(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            pid: std::process::id(),
        }
    }
}

impl std::fmt::Display for RunOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

impl RunOwner {
    /// Whether it is sure to have ended, as seen from this machine.
    fn is_gone(&self, here: &str) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let lives = pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH));
        self.host == here && !lives
    }
}

/// The right to work on a run, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunLock {
    /// Takes the lock, or says who holds it.
    pub fn take(dir: &Path, run: &RunId, owner: &RunOwner) -> Result<Self, StateError> {
        let path = dir.join("lock");
        let file = open(&path)?;
        let give_up = Instant::now() + LAST_BREATH;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let holder = read_owner(dir);
            let gone = holder.as_ref().is_none_or(|holder| holder.is_gone(&owner.host));
            if !gone || Instant::now() >= give_up {
                return Err(StateError::Owned {
                    run: run.clone(),
                    owner: holder.map_or("another process".to_owned(), |holder| holder.to_string()),
                });
            }
            thread::sleep(PAUSE);
        }
        let text = serde_json::to_string(owner).unwrap_or_default();
        write_atomically(&dir.join("owner.json"), text.as_bytes())?;
        Ok(Self { _file: file })
    }

    /// The owner that is alive now, if any.
    pub fn holder(dir: &Path) -> Result<Option<RunOwner>, StateError> {
        let path = dir.join("lock");
        if !path.exists() {
            return Ok(None);
        }
        let file = open(&path)?;
        // A shared lock can be had exactly when no owner lives.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(_) => Ok(read_owner(dir)),
        }
    }
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

fn read_owner(dir: &Path) -> Option<RunOwner> {
    serde_json::from_slice(&fs::read(dir.join("owner.json")).ok()?).ok()
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
    fn the_lock_of_an_owner_that_is_gone_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::random();
        let owner = |pid| RunOwner {
            host: "here".into(),
            pid,
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
