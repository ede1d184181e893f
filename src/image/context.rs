//! The build context of a project's own Dockerfile: what is in it, and one digest over all of that.
//!
//! `docs/reference/image-hash.md` says what is hashed, byte by byte.

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

use super::dockerignore::{Ignore, IgnoreError};
use crate::digest::Digest;
use reader::{ReadEntry, read_entries};

pub use cache::HashCache;
pub(super) use send::lone_dockerfile;

/// The first field of what is hashed.
const FORMAT: &str = "ralph build context 1";

/// A build context as it was when it was read. A builder gets exactly these entries: owned by root, of mode 755 or 644,
/// without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    root: PathBuf,
    entries: Vec<Entry>,
}

/// One thing in a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is, relative to the context and with slashes.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry of a context is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Whether it can be run.
        mode: FileMode,
        /// How long it is.
        size: u64,
        /// The digest of what it holds.
        digest: Digest,
    },
    /// A symbolic link, whatever it leads to.
    Link {
        /// Where it points, as it is written in it.
        target: PathBuf,
    },
}

/// All that counts of a file's permissions: what git keeps, too. The rest depends on the umask of whoever checked it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// Sent as 644.
    Plain,
    /// Its owner may run it. Sent as 755.
    Executable,
}

/// Why a context cannot be read.
#[derive(Debug, Error)]
pub enum ContextError {
    /// A file or a directory that cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of `.dockerignore`.
    #[error("`{}` cannot be used", path.display())]
    Ignore {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: IgnoreError,
    },
    /// Something that cannot be in an image.
    #[error("`{}` is a {kind}, which cannot be sent to a builder", path.display())]
    Special {
        /// Which one.
        path: PathBuf,
        /// What it is.
        kind: SpecialFile,
    },
    /// A name that is not the same everywhere.
    #[error("the name of `{}` is not UTF-8, so that not every builder takes it", path.display())]
    Name {
        /// Which one, as far as it can be shown.
        path: PathBuf,
    },
}

impl ContextError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } | Self::Special { .. } | Self::Name { .. } => Some(
                "if the image does not need it, leave it out with a line in the `.dockerignore` of that directory",
            ),
            Self::Ignore { .. } => None,
        }
    }

    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Read { path, source }
    }
}

/// A file that is none.
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

impl Context {
    /// Reads the context in `root`: everything but what its `.dockerignore` leaves out, and but the files at its top
    /// that are `never_sent`. Takes as long as reading every file that the cache does not remember.
    pub fn read(root: &Path, never_sent: &[&str], cache: &HashCache) -> Result<Self, ContextError> {
        let listing = walk::list(root, &ignore(root)?, never_sent)?;
        let remembered = cache.load(root);
        let read = read_entries(root, listing, &remembered)?;
        remembered.replace(&read.iter().filter_map(ReadEntry::to_remember).collect());
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

    /// What is in it, in the order of the paths' bytes. Directories come before what they hold.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The digest over all of it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let fields = self.entries.iter().flat_map(|entry| {
            let (kind, content) = entry.kind.fields();
            [kind.as_bytes(), entry.path.as_bytes(), content]
        });
        Digest::sha256_fields([FORMAT.as_bytes()].into_iter().chain(fields))
    }

    /// The digest of a context with nothing in it.
    #[must_use]
    pub fn empty_digest() -> Digest {
        Digest::sha256_fields([FORMAT])
    }
}

impl EntryKind {
    /// How the kind is called where it is hashed, and what else counts.
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

fn ignore(root: &Path) -> Result<Ignore, ContextError> {
    let path = root.join(".dockerignore");
    match fs::read_to_string(&path) {
        Ok(text) => Ignore::parse(&text).map_err(|source| ContextError::Ignore { path, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ignore::default()),
        Err(source) => Err(ContextError::read(&path, source)),
    }
}

#[cfg(test)]
mod tests;
