//! What is remembered of images that were read, so that the next load reads only what it sends.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Clock;
use crate::digest::Digest;
use crate::remember::{self, Look};

/// A directory of what is known of layers. It can be deleted at any time.
#[derive(Clone)]
pub struct LayerCache {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
}

impl LayerCache {
    /// Keeps what is remembered in a directory, which is made when it is first needed.
    pub fn new(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir: dir.into(),
            clock,
        }
    }

    /// A cache like this one in another directory.
    pub(super) fn within(&self, dir: &Path) -> Self {
        Self::new(dir, self.clock.clone())
    }

    /// What was kept under this name. What cannot be read is as good as nothing.
    pub(super) fn find<T: DeserializeOwned>(&self, kind: &str, key: &Digest) -> Option<T> {
        let bytes = fs::read(self.file(kind, key)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn keep<T: Serialize>(&self, kind: &str, key: &Digest, value: &T) {
        if let Ok(bytes) = serde_json::to_vec(value) {
            remember::save(&self.file(kind, key), &bytes);
        }
    }

    /// Whether something may be remembered of a file that looks like this.
    pub(super) fn is_settled(&self, look: &Look) -> bool {
        look.is_settled(self.clock.now())
    }

    /// A file without a name, which is gone when nobody has it open.
    pub(super) fn scratch_file(&self) -> io::Result<File> {
        fs::create_dir_all(&self.dir)?;
        tempfile::tempfile_in(&self.dir)
    }

    pub(super) fn scratch_dir(&self) -> io::Result<tempfile::TempDir> {
        fs::create_dir_all(&self.dir)?;
        tempfile::tempdir_in(&self.dir)
    }

    fn file(&self, kind: &str, key: &Digest) -> PathBuf {
        self.dir.join(format!("{kind}-{}", key.hex()))
    }
}

impl std::fmt::Debug for LayerCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LayerCache({})", self.dir.display())
    }
}
