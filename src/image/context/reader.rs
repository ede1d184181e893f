//! Reads the files of a build context, on all processors.

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::walk::{Found, Listing};
use super::{ContextError, Entry, EntryKind};
use crate::image::digest::Digest;
use crate::remember::{FileHash, FileHashes, Look};

/// A thread that has less than this to read costs more than it saves.
const BYTES_WORTH_A_THREAD: u64 = 1 << 20;

/// An entry, and what its file looked like if that can be relied on.
pub(super) struct ReadEntry {
    pub(super) entry: Entry,
    lasting: Option<Look>,
}

impl ReadEntry {
    /// What the next look at the context may rely on.
    pub(super) fn to_remember(&self) -> Option<(Vec<u8>, (Look, FileHash))> {
        match &self.entry.kind {
            EntryKind::File { digest, .. } => {
                let name = self.entry.path.clone().into_bytes();
                Some((name, (self.lasting?, *digest.as_bytes())))
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
    let unread: Vec<u64> = found
        .iter()
        .map(|(path, found)| reader.unread(path, found))
        .collect();
    // The longest first, so that no thread is left alone with one at the end.
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|index| Reverse(unread[*index]));

    let next = AtomicUsize::new(0);
    let work = || {
        let mut read = Vec::new();
        while let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (path, found) = &found[*index];
            read.push((*index, reader.read(path, found)));
        }
        read
    };
    let mut read = on_threads(threads_for(unread.iter().sum()), work);
    read.sort_by_key(|(index, _)| *index);
    read.into_iter().map(|(_, entry)| entry).collect()
}

struct Reader<'a> {
    root: &'a Path,
    remembered: &'a FileHashes,
}

impl Reader<'_> {
    /// How many bytes must be read for an entry.
    fn unread(&self, path: &str, found: &Found) -> u64 {
        match found {
            Found::File { size, look, .. } if self.remembered.find(path.as_bytes(), look).is_none() => *size,
            _ => 0,
        }
    }

    fn read(&self, path: &str, found: &Found) -> Result<ReadEntry, ContextError> {
        let (kind, lasting) = match found {
            Found::Directory => (EntryKind::Directory, None),
            Found::Link { target } => (
                EntryKind::Link {
                    target: target.clone(),
                },
                None,
            ),
            Found::File { mode, size, look } => {
                let whole = self.root.join(path);
                let hashed = self.remembered.hash(path.as_bytes(), &whole, look);
                let hashed = hashed.map_err(|source| ContextError::read(&whole, source))?;
                let (mode, size, digest) = (*mode, *size, Digest::from_bytes(hashed.hash));
                (EntryKind::File { mode, size, digest }, hashed.lasting)
            }
        };
        let path = path.to_owned();
        let entry = Entry { path, kind };
        Ok(ReadEntry { entry, lasting })
    }
}

fn threads_for(bytes: u64) -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let worthwhile = bytes / BYTES_WORTH_A_THREAD;
    usize::try_from(worthwhile).map_or(processors, |worthwhile| worthwhile.clamp(1, processors))
}

/// Does the same work on this thread and on others, and gathers what comes of it.
fn on_threads<T: Send>(threads: usize, work: impl Fn() -> Vec<T> + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mut all = work();
        for other in others {
            match other.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}
