//! Tar archives with a hash of their content.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use crate::digest::Digest;

type ArchiveWriter = dyn Fn(&mut dyn Write) -> io::Result<()> + Send + Sync;

/// A tar archive that can be written more than once. Archives with the same digest have the same bytes.
#[derive(Clone)]
pub struct ContentArchive {
    digest: Digest,
    size: u64,
    write: Arc<ArchiveWriter>,
}

impl ContentArchive {
    /// The archive that this function writes: of files with this digest, and this many bytes in all. The function may
    /// block, and fails if the files have changed.
    pub fn new(
        digest: Digest,
        size: u64,
        write: impl Fn(&mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let write = Arc::new(write);
        Self { digest, size, write }
    }

    /// The digest of the files.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The size of all files in bytes. The archive is a little larger.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes the archive on the current thread.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        (self.write)(out)
    }
}

/// Shows the digest only: two archives with the same digest are the same.
impl fmt::Debug for ContentArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentArchive({})", self.digest)
    }
}
