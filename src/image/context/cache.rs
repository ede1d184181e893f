//! The cached file hashes of build contexts.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Clock;
use crate::digest::Digest;
use crate::file_hashes::FileHashes;

/// A directory of cached file hashes, with one file for each build context.
#[derive(Clone)]
pub struct HashCache {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
}

impl HashCache {
    /// A cache in this directory, which is created when it is first needed.
    pub fn new(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir: dir.into(),
            clock,
        }
    }

    /// The cached hashes of the files below `root`.
    pub(super) fn load(&self, root: &Path) -> FileHashes {
        let name = Digest::sha256(root.as_os_str().as_bytes());
        FileHashes::load(self.dir.join(format!("context-{}", name.hex())), self.clock.now())
    }
}
