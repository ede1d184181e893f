//! Reads the files of a build context, on all processors.

use std::path::Path;

use super::walk::{Found, Listing};
use super::{ContextError, Entry, EntryKind};
use crate::digest::Digest;
use crate::file_hashes::{FileHashes, FileStamp};
use crate::image::parallel;

/// An entry, and what its file looked like if that can be relied on.
pub(super) struct ReadEntry {
    pub(super) entry: Entry,
    reusable: Option<FileStamp>,
}

impl ReadEntry {
    /// What the next stamp at the context may rely on.
    pub(super) fn to_remember(&self) -> Option<(Vec<u8>, (FileStamp, Digest))> {
        match &self.entry.kind {
            EntryKind::File { digest, .. } => {
                let name = self.entry.path.clone().into_bytes();
                Some((name, (self.reusable?, *digest)))
            }
            EntryKind::Directory | EntryKind::Link { .. } => None,
        }
    }
}

/// Turns what was found into entries, in the same order. Of several files that cannot be read the first is reported.
pub(super) fn read_entries(
    root: &Path,
    listing: Listing,
    remembered: &FileHashes,
) -> Result<Vec<ReadEntry>, ContextError> {
    let reader = Reader { root, remembered };
    let found: Vec<(String, Found)> = listing.into_iter().collect();
    let unread = |(path, found): &(String, Found)| reader.unread(path, found);
    let read = parallel::map(&found, unread, |(path, found)| reader.read(path, found));
    read.into_iter().collect()
}

struct Reader<'a> {
    root: &'a Path,
    remembered: &'a FileHashes,
}

impl Reader<'_> {
    /// How many bytes must be read for an entry.
    fn unread(&self, path: &str, found: &Found) -> u64 {
        match found {
            Found::File { size, stamp, .. } if self.remembered.find(path.as_bytes(), stamp).is_none() => {
                *size
            }
            _ => 0,
        }
    }

    fn read(&self, path: &str, found: &Found) -> Result<ReadEntry, ContextError> {
        let (kind, reusable) = match found {
            Found::Directory => (EntryKind::Directory, None),
            Found::Link { target } => (
                EntryKind::Link {
                    target: target.clone(),
                },
                None,
            ),
            Found::File { mode, size, stamp } => {
                let whole = self.root.join(path);
                let hashed = self.remembered.hash(path.as_bytes(), &whole, stamp);
                let hashed = hashed.map_err(|source| ContextError::read(&whole, source))?;
                let (mode, size, digest) = (*mode, *size, hashed.digest);
                (EntryKind::File { mode, size, digest }, hashed.reusable)
            }
        };
        let path = path.to_owned();
        let entry = Entry { path, kind };
        Ok(ReadEntry { entry, reusable })
    }
}
