//! Reads the files of a build context, on all processors.

use std::path::Path;

use super::walk::{ContextListing, WalkedEntry};
use super::{BuildContextError, ContextEntry, ContextEntryKind};
use crate::digest::Digest;
use crate::file_hashes::{FileHashes, FileStamp};
use crate::image::parallel;

/// An entry, and the stamp of its file if its hash can be reused.
pub(super) struct ReadEntry {
    pub(super) entry: ContextEntry,
    reusable: Option<FileStamp>,
}

impl ReadEntry {
    /// The entry for the cache.
    pub(super) fn to_cache(&self) -> Option<(Vec<u8>, (FileStamp, Digest))> {
        match &self.entry.kind {
            ContextEntryKind::File { digest, .. } => {
                let name = self.entry.path.clone().into_bytes();
                Some((name, (self.reusable?, *digest)))
            }
            ContextEntryKind::Directory | ContextEntryKind::Link { .. } => None,
        }
    }
}

/// Hashes the files, and returns the entries in the same order. Of several files that cannot be read, the first is reported.
pub(super) fn read_entries(
    root: &Path,
    listing: ContextListing,
    cached: &FileHashes,
) -> Result<Vec<ReadEntry>, BuildContextError> {
    let reader = EntryReader { root, cached };
    let found: Vec<(String, WalkedEntry)> = listing.into_iter().collect();
    let unread = |(path, found): &(String, WalkedEntry)| reader.unread(path, found);
    let read = parallel::map(&found, unread, |(path, found)| reader.read(path, found));
    read.into_iter().collect()
}

struct EntryReader<'a> {
    root: &'a Path,
    cached: &'a FileHashes,
}

impl EntryReader<'_> {
    /// The number of bytes that must be read for an entry.
    fn unread(&self, path: &str, found: &WalkedEntry) -> u64 {
        match found {
            WalkedEntry::File { size, stamp, .. } if self.cached.find(path.as_bytes(), stamp).is_none() => {
                *size
            }
            _ => 0,
        }
    }

    fn read(&self, path: &str, found: &WalkedEntry) -> Result<ReadEntry, BuildContextError> {
        let (kind, reusable) = match found {
            WalkedEntry::Directory => (ContextEntryKind::Directory, None),
            WalkedEntry::Link { target } => (
                ContextEntryKind::Link {
                    target: target.clone(),
                },
                None,
            ),
            WalkedEntry::File { mode, size, stamp } => {
                let whole = self.root.join(path);
                let hashed = self.cached.hash(path.as_bytes(), &whole, stamp);
                let hashed = hashed.map_err(|source| BuildContextError::read(&whole, source))?;
                let (mode, size, digest) = (*mode, *size, hashed.digest);
                (ContextEntryKind::File { mode, size, digest }, hashed.reusable)
            }
        };
        let path = path.to_owned();
        let entry = ContextEntry { path, kind };
        Ok(ReadEntry { entry, reusable })
    }
}
