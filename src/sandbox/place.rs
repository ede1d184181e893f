//! Where a sandbox is on the host: its workspace, and what is written down about it.
//!
//! Labels of a container cannot be changed, so who has it *now* stands in a file beside its workspace.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::files::{self, FileOwner};
use super::owner::Owner;
use crate::atomic_file::{FileAccess, write_atomically};
use crate::id::RunId;

/// The directories of a workspace.
const DIRECTORIES: [&str; 2] = ["work", "home"];

/// The directory of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    dir: PathBuf,
}

/// What is written down about a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The run that has it now.
    pub(super) run: RunId,
    /// The task it was made for.
    pub(super) task: String,
    /// What it was made from.
    pub(super) fingerprint: String,
    /// Who has it now.
    pub(super) owner: Owner,
}

/// Whether a place could be kept from others.
#[derive(Debug)]
pub(super) enum Claim {
    /// It is, for as long as this is kept; there is no lock where there is no place.
    Held(Option<File>),
    /// Somebody took it, or removed it, since it was seen.
    Changed,
}

impl Place {
    /// The place of the sandbox of this name.
    pub(super) fn of(base: &Path, name: &str) -> Self {
        Self { dir: base.join(name) }
    }

    /// The place with this workspace.
    pub(super) fn with_workspace(workspace: &Path) -> Option<Self> {
        let place = Self {
            dir: workspace.parent()?.to_owned(),
        };
        (place.workspace() == workspace).then_some(place)
    }

    /// All places there are.
    pub(super) fn all(base: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(base) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut places = Vec::new();
        for entry in entries {
            let entry = entry?;
            // What is kept for all of them is a file.
            if entry.file_type()?.is_dir() {
                places.push(Self { dir: entry.path() });
            }
        }
        Ok(places)
    }

    /// Makes the directories; fails when there is one of this name.
    pub(super) fn make(&self, record: &Record, owner: Option<FileOwner>) -> io::Result<()> {
        if let Some(base) = self.dir.parent() {
            fs::create_dir_all(base)?;
        }
        DirBuilder::new().mode(0o700).create(&self.dir)?;
        self.write(record)?;
        fs::create_dir(self.staging())?;
        // Whoever is in the sandbox may pass through; on the host the directory above is closed to them.
        DirBuilder::new().mode(0o711).create(self.door())?;
        fs::create_dir(self.trust())?;
        fs::set_permissions(self.trust(), Permissions::from_mode(0o755))?;
        fs::create_dir(self.shared())?;
        // The holder is root without root's power over files. Nobody else comes this far: the place itself is ours alone.
        fs::set_permissions(self.shared(), Permissions::from_mode(0o777))?;
        let private = |dir: &Path| -> io::Result<()> {
            DirBuilder::new().mode(0o700).create(dir)?;
            owner.map_or(Ok(()), |owner| chown(dir, Some(owner.uid), Some(owner.gid)))
        };
        private(&self.workspace())?;
        DIRECTORIES
            .iter()
            .try_for_each(|name| private(&self.workspace().join(name)))
    }

    /// What is written down; `None` when there is nothing, or nothing that can be read.
    pub(super) fn record(&self) -> Option<Record> {
        let bytes = fs::read(self.record_file()).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Writes it down.
    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        write_atomically(
            &self.record_file(),
            &serde_json::to_vec(record)?,
            FileAccess::Private,
        )
    }

    /// Writes down a new owner in place of a dead one, unless somebody else was quicker.
    pub(super) fn claim(&self, dead: &Record, record: &Record) -> io::Result<bool> {
        match self.hold(Some(dead))? {
            Claim::Held(_lock) => self.write(record).map(|()| true),
            Claim::Changed => Ok(false),
        }
    }

    /// Keeps others from claiming it, as long as it is as it was last seen.
    pub(super) fn hold(&self, seen: Option<&Record>) -> io::Result<Claim> {
        let lock = match File::create(self.dir.join("lock")) {
            Ok(lock) => lock,
            // Nobody can claim what is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound && seen.is_none() => {
                return Ok(Claim::Held(None));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Claim::Changed),
            Err(error) => return Err(error),
        };
        flock(&lock, FlockOperation::LockExclusive)?;
        if self.record().as_ref() == seen {
            Ok(Claim::Held(Some(lock)))
        } else {
            Ok(Claim::Changed)
        }
    }

    /// Writes down that all of the sandbox was made.
    pub(super) fn finish(&self) -> io::Result<()> {
        File::create(self.finished_file()).map(drop)
    }

    /// Whether all of the sandbox was made: whoever made it may have been killed before.
    pub(super) fn is_finished(&self) -> bool {
        self.finished_file().exists()
    }

    /// Whether nothing of it is there: neither a sandbox's, nor one that is being made.
    pub(super) fn is_gone(&self) -> bool {
        self.dir
            .symlink_metadata()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// When it was made.
    pub(super) fn made(&self) -> Option<Timestamp> {
        let made = fs::metadata(&self.dir).and_then(|dir| dir.modified()).ok()?;
        Timestamp::try_from(made).ok()
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

    /// Where files are made before they are moved in whole.
    pub(super) fn staging(&self) -> PathBuf {
        self.dir.join("staging")
    }

    /// Where the sandbox finds the door of a session, and can change nothing.
    pub(super) fn door(&self) -> PathBuf {
        self.dir.join("door")
    }

    /// Where the sandbox finds what its programs are to trust, and can change nothing.
    pub(super) fn trust(&self) -> PathBuf {
        self.dir.join("trust")
    }

    /// What the holder of the sandbox's network shares with ralph. The sandbox does not see it.
    pub(super) fn shared(&self) -> PathBuf {
        self.dir.join("holder")
    }

    /// What is said by whatever keeps the sandbox running.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Removes all of it; what is not there is fine.
    pub(super) fn remove(&self) -> io::Result<()> {
        files::remove_all(&self.dir)
    }

    fn finished_file(&self) -> PathBuf {
        self.dir.join("finished")
    }

    fn record_file(&self) -> PathBuf {
        self.dir.join("sandbox.json")
    }
}
