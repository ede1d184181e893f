//! The host directory of one sandbox: its workspace, and a record of who owns it.
//!
//! The labels of a container cannot be changed, so the current owner is recorded in a file beside the workspace.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::SandboxError;
use super::files::{self, FileOwner};
use super::owner::Owner;
use crate::atomic_file::{FileAccess, create_durably, write_atomically};
use crate::exec::blocking;
use crate::id::RunId;

/// The file with the record.
const RECORD: &str = "sandbox.json";

/// The file that is locked while the record is replaced.
const LOCK: &str = "lock";

/// The directories that every workspace has.
const DIRECTORIES: [&str; 2] = ["work", "home"];

/// The host directory of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SandboxDir {
    dir: PathBuf,
}

/// What is recorded about a sandbox in its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SandboxRecord {
    /// The run that owns it now.
    pub(super) run: RunId,
    /// The task it was created for.
    pub(super) task: String,
    /// Changes with everything that the sandbox was created from.
    pub(super) fingerprint: String,
    /// The process that owns it now.
    pub(super) owner: Owner,
    /// Whether only evidence is gathered in it.
    #[serde(default)]
    pub(super) for_evidence: bool,
}

/// The result of locking a sandbox directory.
#[derive(Debug)]
pub(super) enum DirLock {
    /// Locked until this value is dropped. There is no lock file if the directory does not exist.
    Held(Option<File>),
    /// The record changed, or the directory was removed, since it was read.
    Changed,
}

impl SandboxDir {
    /// The id of the directory `base`, which is random; `None` if no sandbox was created in it yet.
    pub(super) fn base_id(base: &Path) -> Result<Option<String>, SandboxError> {
        let file = base_id_file(base);
        match fs::read_to_string(&file) {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SandboxError::host("read", &file, error)),
        }
    }

    /// The id of the directory `base`. Creates a random one if the directory has no id yet.
    pub(super) fn ensure_base_id(base: &Path) -> Result<String, SandboxError> {
        if let Some(id) = Self::base_id(base)? {
            return Ok(id);
        }
        let file = base_id_file(base);
        let id = format!("{:032x}", fastrand::u128(..));
        let created = create_durably(&file, id.as_bytes(), FileAccess::Private);
        created.map_err(|error| SandboxError::host("write", &file, error))?;
        // Another process may have been faster.
        Ok(Self::base_id(base)?.unwrap_or(id))
    }

    /// The directory of the sandbox with this name.
    pub(super) fn new(base: &Path, name: &str) -> Self {
        Self { dir: base.join(name) }
    }

    /// The directory that a workspace belongs to.
    pub(super) fn from_workspace(workspace: &Path) -> Option<Self> {
        let found = Self {
            dir: workspace.parent()?.to_owned(),
        };
        (found.workspace() == workspace).then_some(found)
    }

    /// All sandbox directories below `base`.
    pub(super) fn all(base: &Path) -> Result<Vec<Self>, SandboxError> {
        let list = || -> io::Result<Vec<Self>> {
            let mut dirs = Vec::new();
            for entry in fs::read_dir(base)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    dirs.push(Self { dir: entry.path() });
                }
            }
            Ok(dirs)
        };
        match list() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            dirs => dirs.map_err(|error| SandboxError::host("list", base, error)),
        }
    }

    /// Whether it is directly below `base`, by whatever path that is known.
    pub(super) fn is_below(&self, base: &Path) -> bool {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.dir.parent().is_some_and(|parent| real(parent) == real(base))
    }

    /// Creates the directories and the record. Returns false if the directory exists already.
    pub(super) fn create(
        &self,
        record: &SandboxRecord,
        owner: Option<FileOwner>,
    ) -> Result<bool, SandboxError> {
        match self.try_create(record, owner) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(self.error("create", error)),
        }
    }

    fn try_create(&self, record: &SandboxRecord, owner: Option<FileOwner>) -> io::Result<()> {
        if let Some(base) = self.dir.parent() {
            fs::create_dir_all(base)?;
        }
        DirBuilder::new().mode(0o700).create(&self.dir)?;
        self.write_record(record)?;
        // Users inside the sandbox may pass through, and the holder is root without the capability to override file
        // permissions. On the host the parent directory keeps other users out.
        for (dir, mode) in [
            (self.staging(), 0o700),
            (self.session_socket_dir(), 0o711),
            (self.trust(), 0o755),
            (self.holder_dir(), 0o777),
        ] {
            fs::create_dir(&dir)?;
            fs::set_permissions(&dir, Permissions::from_mode(mode))?;
        }
        let private = |dir: &Path| -> io::Result<()> {
            DirBuilder::new().mode(0o700).create(dir)?;
            owner.map_or(Ok(()), |owner| chown(dir, Some(owner.uid), Some(owner.gid)))
        };
        private(&self.workspace())?;
        DIRECTORIES
            .iter()
            .try_for_each(|name| private(&self.workspace().join(name)))
    }

    /// The record; `None` if it does not exist or cannot be parsed.
    pub(super) fn record(&self) -> Option<SandboxRecord> {
        let bytes = fs::read(self.dir.join(RECORD)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Replaces the record.
    pub(super) fn record_owner(&self, record: &SandboxRecord) -> Result<(), SandboxError> {
        self.write_record(record)
            .map_err(|error| self.error("take over", error))
    }

    fn write_record(&self, record: &SandboxRecord) -> io::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        write_atomically(&self.dir.join(RECORD), &bytes, FileAccess::Private)
    }

    /// Replaces the record `seen`. Returns false if another process was faster.
    pub(super) fn claim(&self, seen: &SandboxRecord, record: &SandboxRecord) -> Result<bool, SandboxError> {
        match self.lock(Some(seen))? {
            DirLock::Held(_lock) => self.record_owner(record).map(|()| true),
            DirLock::Changed => Ok(false),
        }
    }

    /// Keeps other processes from claiming the sandbox, provided that its record is still `seen`.
    pub(super) fn lock(&self, seen: Option<&SandboxRecord>) -> Result<DirLock, SandboxError> {
        let lock = match File::create(self.dir.join(LOCK)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // What does not exist cannot be claimed.
                return Ok(seen.map_or(DirLock::Held(None), |_| DirLock::Changed));
            }
            Err(error) => return Err(self.error("lock", error)),
        };
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| self.error("lock", error.into()))?;
        if self.record().as_ref() == seen {
            Ok(DirLock::Held(Some(lock)))
        } else {
            Ok(DirLock::Changed)
        }
    }

    /// Marks the sandbox as completely created.
    pub(super) fn finish(&self) -> Result<(), SandboxError> {
        File::create(self.finished_file())
            .map(drop)
            .map_err(|error| self.error("create", error))
    }

    /// Whether the sandbox was completely created. Its owner may have been killed before.
    pub(super) fn is_finished(&self) -> bool {
        self.finished_file().exists()
    }

    /// The id of the directory that this one is in.
    pub(super) fn base_id_here(&self) -> Result<Option<String>, SandboxError> {
        self.dir.parent().map_or(Ok(None), Self::base_id)
    }

    /// Whether the directory does not exist.
    pub(super) fn is_gone(&self) -> bool {
        self.dir
            .symlink_metadata()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// When the directory was last changed.
    pub(super) fn modified(&self) -> Option<Timestamp> {
        let modified = fs::metadata(&self.dir).and_then(|dir| dir.modified()).ok()?;
        Timestamp::try_from(modified).ok()
    }

    /// The name of the sandbox.
    pub(super) fn name(&self) -> String {
        let name = self.dir.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// What the sandbox sees as its root.
    pub(super) fn workspace(&self) -> PathBuf {
        self.dir.join("workspace")
    }

    /// Where files are written before they are moved into the workspace.
    pub(super) fn staging(&self) -> PathBuf {
        self.dir.join("staging")
    }

    /// Holds the socket of the warm session. The sandbox sees it read-only.
    pub(super) fn session_socket_dir(&self) -> PathBuf {
        self.dir.join("door")
    }

    /// Holds the certificates that the sandbox trusts. The sandbox sees it read-only.
    pub(super) fn trust(&self) -> PathBuf {
        self.dir.join("trust")
    }

    /// Shared with the holder. The sandbox does not see it.
    pub(super) fn holder_dir(&self) -> PathBuf {
        self.dir.join("holder")
    }

    /// The log of the host process that keeps the sandbox running.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Names the template that the VM was cloned from.
    pub(super) fn template_file(&self) -> PathBuf {
        self.dir.join("template")
    }

    /// Removes the directory and everything in it, if it exists. The record goes last: without it, a directory whose removal was
    /// interrupted would be taken for one that is being created, and stay.
    pub(super) async fn remove(&self) -> Result<(), SandboxError> {
        let dir = self.dir.clone();
        let removed = blocking(move || {
            let entries = match fs::read_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_name() != RECORD && entry.file_name() != LOCK {
                    files::remove_all(&entry.path())?;
                }
            }
            files::remove_all(&dir.join(LOCK))?;
            files::remove_all(&dir)
        });
        removed.await.map_err(|error| self.error("remove", error))
    }

    fn finished_file(&self) -> PathBuf {
        self.dir.join("finished")
    }

    fn error(&self, operation: &str, error: io::Error) -> SandboxError {
        SandboxError::host(operation, &self.dir, error)
    }
}

/// The file with the id of `base`. It is beside it, because every entry of `base` is a sandbox.
fn base_id_file(base: &Path) -> PathBuf {
    base.with_extension("id")
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn an_interrupted_removal_leaves_the_record() {
        let base = TempDir::new().unwrap();
        let dir = SandboxDir::new(base.path(), "one");
        let record = SandboxRecord {
            run: RunId::random(),
            task: "t1".to_owned(),
            fingerprint: "v1".to_owned(),
            owner: Owner::this_process("host"),
            for_evidence: false,
        };
        assert!(dir.create(&record, None).unwrap());
        for number in 0..3000 {
            fs::create_dir(dir.workspace().join(number.to_string())).unwrap();
        }
        let seen = dir.clone();
        let watcher = std::thread::spawn(move || {
            while seen.record().is_some() {}
            fs::read_dir(&seen.dir).map_or(0, Iterator::count)
        });
        dir.remove().await.unwrap();
        assert_eq!(watcher.join().unwrap(), 0);
        assert!(dir.is_gone());
        dir.remove().await.unwrap();
    }
}
