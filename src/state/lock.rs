//! One owner per run. The kernel lets go of the lock when the owner dies, however it dies.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::id::RunId;

use super::{StateError, write_atomically};

/// Who works on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
}

impl Owner {
    /// This process, on the machine of that name. The name tells machines apart that share a run's state ref.
    pub fn this_process(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            pid: std::process::id(),
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// The right to work on a run, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or says who holds it.
    pub fn take(dir: &Path, run: &RunId, owner: &Owner) -> Result<Self, StateError> {
        let path = dir.join("lock");
        let file = open(&path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let owner = read_owner(dir).map_or("another process".to_owned(), |owner| owner.to_string());
            return Err(StateError::Owned {
                run: run.clone(),
                owner,
            });
        }
        let text = serde_json::to_string(owner).unwrap_or_default();
        write_atomically(&dir.join("owner.json"), text.as_bytes())?;
        Ok(Self { _file: file })
    }

    /// The owner that is alive now, if any.
    pub fn holder(dir: &Path) -> Result<Option<Owner>, StateError> {
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

fn read_owner(dir: &Path) -> Option<Owner> {
    serde_json::from_slice(&fs::read(dir.join("owner.json")).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::random();
        let owner = Owner {
            host: "here".into(),
            pid: 7,
        };
        let lock = Lock::take(dir.path(), &run, &owner).unwrap();
        assert_eq!(Lock::holder(dir.path()).unwrap(), Some(owner.clone()));
        let refused = Lock::take(dir.path(), &run, &owner).unwrap_err().to_string();
        assert!(refused.contains("process 7 on here"), "{refused}");
        drop(lock);
        assert_eq!(Lock::holder(dir.path()).unwrap(), None);
        Lock::take(dir.path(), &run, &owner).unwrap();
    }
}
