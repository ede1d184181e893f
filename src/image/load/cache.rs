//! What earlier loads computed about layers and programs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::atomic_file::write_cache;
use crate::digest::Digest;

/// A directory of facts about layers, and of scratch files. It can be deleted at any time.
#[derive(Clone, Debug)]
pub struct LayerCache(PathBuf);

impl LayerCache {
    /// A cache in this directory, which is created when it is first needed.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// Reads an entry. One that is missing or damaged is `None`.
    pub(super) fn find<T: DeserializeOwned>(&self, kind: &str, key: &Digest) -> Option<T> {
        let bytes = fs::read(self.file(kind, key)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn keep<T: Serialize>(&self, kind: &str, key: &Digest, value: &T) {
        if let Ok(bytes) = serde_json::to_vec(value) {
            write_cache(&self.file(kind, key), &bytes);
        }
    }

    /// A file without a name, which disappears when it is closed.
    pub(super) fn scratch_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(self.created()?)
    }

    pub(super) fn scratch_dir(&self) -> io::Result<tempfile::TempDir> {
        tempfile::tempdir_in(self.created()?)
    }

    fn created(&self) -> io::Result<&Path> {
        fs::create_dir_all(&self.0)?;
        Ok(&self.0)
    }

    fn file(&self, kind: &str, key: &Digest) -> PathBuf {
        self.0.join(format!("{kind}-{}", key.hex()))
    }
}
