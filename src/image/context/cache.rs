//! Where the digests of build contexts are remembered.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Clock;
use crate::digest::Digest;
use crate::file_hashes::FileHashes;

/// A directory of remembered digests, a file for each build context.
#[derive(Clone)]
pub struct HashCache {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
}

impl HashCache {
    /// Keeps what is remembered in a directory, which is made when it is first needed.
    pub fn new(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir: dir.into(),
            clock,
        }
    }

    /// What is remembered of the files below `root`.
    pub(super) fn load(&self, root: &Path) -> FileHashes {
        let name = Digest::sha256(root.as_os_str().as_bytes());
        FileHashes::load(self.dir.join(format!("context-{}", name.hex())), self.clock.now())
    }
}
