//! The build context of a Dockerfile, and its digest.
//!
//! `docs/reference/image-hash.md` specifies what is hashed.

mod send;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dockerignore::DockerIgnore;
use super::error::ImageError;
use super::parallel;
use crate::clock::Clock;
use crate::digest::Digest;
use crate::file_hashes::{FileHashes, HashTable};
use walk::Walk;

/// The first field of the hash.
const FORMAT: &str = "ralph build context 1";

/// A build context as it was when it was read. A builder gets exactly these entries, owned by root, with mode 755 or 644
/// and without times. By default it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildContext {
    root: PathBuf,
    /// By path, relative to the root and with slashes. A directory comes before its content.
    entries: BTreeMap<String, ContextEntry>,
}

/// A file, directory or link in a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContextEntry {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Whether its owner can execute it, which is the only permission that git keeps.
        is_executable: bool,
        /// Its size in bytes.
        size: u64,
        /// The digest of its content.
        digest: Digest,
    },
    /// A symbolic link, which is not followed.
    Link {
        /// Its target, as it is written.
        target: PathBuf,
    },
}

impl BuildContext {
    /// Reads the context in `root`: everything except what its `.dockerignore` excludes and the files `never_sent` at its
    /// top. Reads every file whose hash is not cached, on all processors. Of several files that cannot be read, the first
    /// is reported.
    pub fn read(root: &Path, never_sent: &[&str], cache: &HashCache) -> Result<Self, ImageError> {
        let Walk {
            mut entries, files, ..
        } = Walk::run(root, &ignore(root)?, never_sent)?;
        let files: Vec<_> = files.into_iter().collect();
        let cached = cache.load(root);
        let unread =
            |(path, file): &(String, walk::FoundFile)| match cached.find(path.as_bytes(), &file.stamp) {
                Some(_) => 0,
                None => file.size,
            };
        let hashed = parallel::map(&files, unread, |(path, file)| {
            cached.hash(path.as_bytes(), &root.join(path), &file.stamp)
        });
        let mut reusable = HashTable::new();
        for ((path, file), hashed) in files.into_iter().zip(hashed) {
            let hashed = hashed.map_err(unreadable(&root.join(&path)))?;
            if let Some(stamp) = hashed.reusable {
                reusable.insert(path.clone().into_bytes(), (stamp, hashed.digest));
            }
            let entry = ContextEntry::File {
                is_executable: file.is_executable,
                size: file.size,
                digest: hashed.digest,
            };
            entries.insert(path, entry);
        }
        cached.replace(&reusable);
        let root = root.to_owned();
        Ok(Self { root, entries })
    }

    /// Only the entries whose paths `chooses` accepts.
    pub(in crate::image) fn part(&self, chooses: impl Fn(&str) -> bool) -> Self {
        let chosen = self.entries.iter().filter(|(path, _)| chooses(path));
        Self {
            root: self.root.clone(),
            entries: chosen
                .map(|(path, entry)| (path.clone(), entry.clone()))
                .collect(),
        }
    }

    /// All entries, by path. A directory comes before its content.
    pub(in crate::image) fn entries(&self) -> &BTreeMap<String, ContextEntry> {
        &self.entries
    }

    /// The size of all files in bytes.
    fn size(&self) -> u64 {
        let sizes = self.entries.values().map(|entry| match entry {
            ContextEntry::File { size, .. } => *size,
            ContextEntry::Directory | ContextEntry::Link { .. } => 0,
        });
        sizes.sum()
    }

    /// The digest of all entries.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let fields = self.entries.iter().flat_map(|(path, entry)| {
            let (kind, content): (_, &[u8]) = match entry {
                ContextEntry::Directory => ("directory", &[]),
                ContextEntry::File {
                    is_executable,
                    digest,
                    ..
                } => (
                    if *is_executable { "executable" } else { "file" },
                    digest.as_bytes(),
                ),
                ContextEntry::Link { target } => ("link", target.as_os_str().as_bytes()),
            };
            [kind.as_bytes(), path.as_bytes(), content]
        });
        Digest::sha256_fields([FORMAT.as_bytes()].into_iter().chain(fields))
    }
}

fn ignore(root: &Path) -> Result<DockerIgnore, ImageError> {
    let path = root.join(".dockerignore");
    match fs::read_to_string(&path) {
        Ok(text) => DockerIgnore::parse(&text).map_err(|error| {
            ImageError::invalid(format!("invalid pattern in `{}`", path.display())).with_cause(error)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DockerIgnore::default()),
        Err(error) => Err(unreadable(&path)(error)),
    }
}

/// What the user can do about an entry that cannot be sent.
const EXCLUDE: &str = "if the image does not need it, add it to the `.dockerignore` of the build context";

/// For `map_err`: a file or directory that cannot be read.
fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let failed = ImageError::io("read", path);
    |error| failed(error).with_hint(EXCLUDE)
}

/// A directory of cached file hashes, with one file for each build context.
#[derive(Clone)]
pub struct HashCache {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
}

impl HashCache {
    /// A cache in this directory, which is created when it is first needed.
    pub fn new(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let dir = dir.into();
        Self { dir, clock }
    }

    /// The cached hashes of the files below `root`.
    fn load(&self, root: &Path) -> FileHashes {
        let name = Digest::sha256(root.as_os_str().as_bytes());
        FileHashes::load(self.dir.join(format!("context-{}", name.hex())), self.clock.now())
    }
}

#[cfg(test)]
mod tests;
