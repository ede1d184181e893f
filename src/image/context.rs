//! The build context of a Dockerfile, and its digest.
//!
//! `docs/reference/image-hash.md` specifies what is hashed.

mod cache;
mod reader;
mod send;
mod walk;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::dockerignore::{DockerIgnore, DockerIgnoreError};
use crate::digest::Digest;
use reader::{ReadEntry, read_entries};

pub use cache::HashCache;
pub(super) use send::lone_dockerfile;

/// The first field of the hash.
const FORMAT: &str = "ralph build context 1";

/// A build context as it was when it was read. A builder gets exactly these entries, owned by root, with mode 755 or 644
/// and without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildContext {
    root: PathBuf,
    entries: Vec<ContextEntry>,
}

/// A file, directory or link in a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextEntry {
    /// Its path, relative to the context and with slashes.
    pub path: String,
    /// Its kind and content.
    pub kind: ContextEntryKind,
}

/// The kind and content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextEntryKind {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Whether it is executable.
        mode: FileMode,
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

/// The part of a file's permissions that git keeps. The rest depends on the umask of the checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// Sent as 644.
    Plain,
    /// Executable by its owner. Sent as 755.
    Executable,
}

/// Why a context cannot be read.
#[derive(Debug, Error)]
pub enum BuildContextError {
    /// A file or directory cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of `.dockerignore` is not valid.
    #[error("invalid pattern in `{}`", path.display())]
    Ignore {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: DockerIgnoreError,
    },
    /// A kind of file that a build context cannot contain.
    #[error("`{}` is a {kind}, which a build context cannot contain", path.display())]
    Special {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: SpecialFile,
    },
    /// A file name is not UTF-8.
    #[error("the name of `{}` is not UTF-8", path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
}

impl BuildContextError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } | Self::Special { .. } | Self::Name { .. } => {
                Some("if the image does not need it, add it to the `.dockerignore` of the build context")
            }
            Self::Ignore { .. } => None,
        }
    }

    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Read { path, source }
    }
}

/// A special file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFile {
    /// A named pipe.
    Pipe,
    /// A device.
    Device,
}

impl fmt::Display for SpecialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pipe => "named pipe",
            Self::Device => "device",
        })
    }
}

impl BuildContext {
    /// Reads the context in `root`: everything except what its `.dockerignore` excludes and the files `never_sent` at its
    /// top. Reads every file whose hash is not cached.
    pub fn read(root: &Path, never_sent: &[&str], cache: &HashCache) -> Result<Self, BuildContextError> {
        let listing = walk::list(root, &ignore(root)?, never_sent)?;
        let cached = cache.load(root);
        let read = read_entries(root, listing, &cached)?;
        cached.replace(&read.iter().filter_map(ReadEntry::to_cache).collect());
        Ok(Self {
            root: root.to_owned(),
            entries: read.into_iter().map(|read| read.entry).collect(),
        })
    }

    /// The directory that it was read from.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The entries, sorted by the bytes of their paths. A directory comes before its content.
    #[must_use]
    pub fn entries(&self) -> &[ContextEntry] {
        &self.entries
    }

    /// The digest of all entries.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let fields = self.entries.iter().flat_map(|entry| {
            let (kind, content) = entry.kind.fields();
            [kind.as_bytes(), entry.path.as_bytes(), content]
        });
        Digest::sha256_fields([FORMAT.as_bytes()].into_iter().chain(fields))
    }

    /// The digest of an empty context.
    #[must_use]
    pub fn empty_digest() -> Digest {
        Digest::sha256_fields([FORMAT])
    }
}

impl ContextEntryKind {
    /// The name of the kind in the hash, and the content.
    fn fields(&self) -> (&'static str, &[u8]) {
        match self {
            Self::Directory => ("directory", &[]),
            Self::File { mode, digest, .. } => (mode.name(), digest.as_bytes()),
            Self::Link { target } => ("link", target.as_os_str().as_bytes()),
        }
    }
}

impl FileMode {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "file",
            Self::Executable => "executable",
        }
    }
}

fn ignore(root: &Path) -> Result<DockerIgnore, BuildContextError> {
    let path = root.join(".dockerignore");
    match fs::read_to_string(&path) {
        Ok(text) => DockerIgnore::parse(&text).map_err(|source| BuildContextError::Ignore { path, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DockerIgnore::default()),
        Err(source) => Err(BuildContextError::read(&path, source)),
    }
}

#[cfg(test)]
mod tests;
