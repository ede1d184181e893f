//! The directories of a sandbox on the host.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::super::files;
use crate::id::RunId;

/// Where the parts of a sandbox are on the host.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// What belongs to the run alone, and goes with its last part.
    run_dir: PathBuf,
    /// What the sandbox sees.
    pub(super) root: PathBuf,
    /// Where files are made before they are moved in whole. Not inside, so that no half of one is ever seen there.
    pub(super) staging: PathBuf,
}

impl Layout {
    /// Makes the directories of a new sandbox; fails when it exists.
    pub(super) fn make(base: &Path, run: &RunId) -> io::Result<Self> {
        fs::create_dir_all(base)?;
        let layout = Self::below(&base.canonicalize()?, run);
        fs::create_dir_all(&layout.run_dir)?;
        DirBuilder::new().mode(0o700).create(&layout.root)?;
        layout.complete()?;
        Ok(layout)
    }

    /// The directories an earlier process made, mended where it was interrupted.
    pub(super) fn find(base: &Path, run: &RunId) -> io::Result<Option<Self>> {
        let base = match base.canonicalize() {
            Ok(base) => base,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let layout = Self::below(&base, run);
        if !layout.root.is_dir() {
            return Ok(None);
        }
        files::remove_all(&layout.staging)?;
        layout.complete()?;
        Ok(Some(layout))
    }

    pub(super) fn below(base: &Path, run: &RunId) -> Self {
        let run_dir = base.join(run.as_str());
        Self {
            root: run_dir.join("sandbox"),
            staging: run_dir.join("staging"),
            run_dir,
        }
    }

    fn complete(&self) -> io::Result<()> {
        for dir in ["work", "home", "tmp"] {
            fs::create_dir_all(self.root.join(dir))?;
        }
        fs::create_dir_all(&self.staging)
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        // The root last: by it a process that takes over from one which was killed here finds the rest.
        files::remove_all(&self.staging)?;
        files::remove_all(&self.root)?;
        // Others may keep files of the run beside the sandbox; then the directory stays.
        let _ = fs::remove_dir(&self.run_dir);
        Ok(())
    }
}
