//! The host directories of a `local` sandbox.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::super::files;
use crate::id::RunId;

/// The host directories of one sandbox.
#[derive(Clone, Debug)]
pub(super) struct LocalDirs {
    /// The directory of the run. It is removed with its last file.
    run_dir: PathBuf,
    /// The root of the sandbox.
    pub(super) root: PathBuf,
    /// Where files are written before they are moved into the root, so that commands never see partial files.
    pub(super) staging: PathBuf,
}

impl LocalDirs {
    /// Creates the directories of a new sandbox. Fails if it exists.
    pub(super) fn create(base: &Path, run: &RunId) -> io::Result<Self> {
        fs::create_dir_all(base)?;
        let dirs = Self::new(&base.canonicalize()?, run);
        fs::create_dir_all(&dirs.run_dir)?;
        DirBuilder::new().mode(0o700).create(&dirs.root)?;
        dirs.create_missing()?;
        Ok(dirs)
    }

    /// The directories of an existing sandbox. Missing ones are created, in case the creation was interrupted.
    pub(super) fn open(base: &Path, run: &RunId) -> io::Result<Option<Self>> {
        let base = match base.canonicalize() {
            Ok(base) => base,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let dirs = Self::new(&base, run);
        if !dirs.root.is_dir() {
            return Ok(None);
        }
        files::remove_all(&dirs.staging)?;
        dirs.create_missing()?;
        Ok(Some(dirs))
    }

    pub(super) fn new(base: &Path, run: &RunId) -> Self {
        let run_dir = base.join(run.as_str());
        Self {
            root: run_dir.join("sandbox"),
            staging: run_dir.join("staging"),
            run_dir,
        }
    }

    fn create_missing(&self) -> io::Result<()> {
        for dir in ["work", "home", "tmp"] {
            fs::create_dir_all(self.root.join(dir))?;
        }
        fs::create_dir_all(&self.staging)
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        // The root last: if this process is killed, the next one finds the other directories through it.
        files::remove_all(&self.staging)?;
        files::remove_all(&self.root)?;
        // Fails if there are other files of the run, which are kept.
        let _ = fs::remove_dir(&self.run_dir);
        Ok(())
    }
}
