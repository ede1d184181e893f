//! Reads the files of a build context, on all processors.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sha2::{Digest as _, Sha256};

use super::cache::{Fingerprint, Remembered};
use super::walk::{Found, Listing};
use super::{ContextError, Entry, EntryKind};
use crate::image::digest::Digest;

/// A thread that has less than this to read costs more than it saves.
const BYTES_WORTH_A_THREAD: u64 = 1 << 20;
const BUFFER: usize = 256 * 1024;

/// An entry, and what its file looked like if that can be relied on.
pub(super) struct ReadEntry {
    pub(super) entry: Entry,
    lasting: Option<Fingerprint>,
}

impl ReadEntry {
    /// What the next look at the context may rely on.
    pub(super) fn to_remember(&self) -> Option<(String, (Fingerprint, Digest))> {
        match &self.entry.kind {
            EntryKind::File { digest, .. } => Some((self.entry.path.clone(), (self.lasting?, *digest))),
            EntryKind::Directory | EntryKind::Link { .. } => None,
        }
    }
}

/// Turns what was found into entries, in the same order. Of several files that cannot be read the first is reported.
pub(super) fn read_entries(
    root: &Path,
    listing: Listing,
    remembered: &Remembered,
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
        let mut buffer = vec![0; BUFFER];
        let mut read = Vec::new();
        while let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (path, found) = &found[*index];
            read.push((*index, reader.read(path, found, &mut buffer)));
        }
        read
    };
    let mut read = on_threads(threads_for(unread.iter().sum()), work);
    read.sort_by_key(|(index, _)| *index);
    read.into_iter().map(|(_, entry)| entry).collect()
}

struct Reader<'a> {
    root: &'a Path,
    remembered: &'a Remembered,
}

impl Reader<'_> {
    /// How many bytes must be read for an entry.
    fn unread(&self, path: &str, found: &Found) -> u64 {
        match found {
            Found::File {
                size, fingerprint, ..
            } if self.remembered.digest(path, fingerprint).is_none() => *size,
            _ => 0,
        }
    }

    fn read(&self, path: &str, found: &Found, buffer: &mut [u8]) -> Result<ReadEntry, ContextError> {
        let (kind, lasting) = match found {
            Found::Directory => (EntryKind::Directory, None),
            Found::Link { target } => (
                EntryKind::Link {
                    target: target.clone(),
                },
                None,
            ),
            Found::File {
                mode,
                size,
                fingerprint,
            } => {
                let (digest, lasting) = self.read_file(path, fingerprint, buffer)?;
                let (mode, size) = (*mode, *size);
                (EntryKind::File { mode, size, digest }, lasting)
            }
        };
        let path = path.to_owned();
        let entry = Entry { path, kind };
        Ok(ReadEntry { entry, lasting })
    }

    /// The digest of a file; with its fingerprint if nobody wrote to it meanwhile or just before.
    fn read_file(
        &self,
        path: &str,
        fingerprint: &Fingerprint,
        buffer: &mut [u8],
    ) -> Result<(Digest, Option<Fingerprint>), ContextError> {
        if let Some(digest) = self.remembered.digest(path, fingerprint) {
            return Ok((digest, Some(*fingerprint)));
        }
        let whole = self.root.join(path);
        let (digest, after) =
            hash_file(&whole, buffer).map_err(|source| ContextError::read(&whole, source))?;
        let lasts = after == *fingerprint && self.remembered.is_settled(fingerprint);
        Ok((digest, lasts.then_some(*fingerprint)))
    }
}

/// The digest of a file, and what the file looked like afterwards.
fn hash_file(path: &Path, buffer: &mut [u8]) -> io::Result<(Digest, Fingerprint)> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    loop {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(length) => hasher.update(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let digest = Digest::from_bytes(hasher.finalize().into());
    Ok((digest, Fingerprint::of(&file.metadata()?)))
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
