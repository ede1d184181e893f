//! Finds what belongs to a build context.

use std::collections::BTreeMap;
use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{ContextError, FileMode, SpecialFile};
use crate::file_hashes::FileStamp;
use crate::image::dockerignore::Ignore;

/// What is in a context, by path, in the order of the bytes.
pub(super) type Listing = BTreeMap<String, Found>;

/// One thing in a context.
pub(super) enum Found {
    Directory,
    File {
        mode: FileMode,
        size: u64,
        stamp: FileStamp,
    },
    Link {
        target: PathBuf,
    },
}

/// Lists everything below `root` that stays in. Links are not followed, and sockets are left out, as Docker does. No
/// `.dockerignore` takes in what is `never_sent`.
pub(super) fn list(root: &Path, ignore: &Ignore, never_sent: &[&str]) -> Result<Listing, ContextError> {
    let mut walk = Walk {
        root,
        ignore,
        never_sent,
        listing: Listing::new(),
        open: vec![PathBuf::new()],
    };
    while let Some(directory) = walk.open.pop() {
        walk.enter(&directory)?;
    }
    Ok(walk.listing)
}

struct Walk<'a> {
    root: &'a Path,
    ignore: &'a Ignore,
    never_sent: &'a [&'a str],
    listing: Listing,
    /// Directories to stamp into, relative to the root.
    open: Vec<PathBuf>,
}

impl Walk<'_> {
    fn enter(&mut self, directory: &Path) -> Result<(), ContextError> {
        let whole = self.root.join(directory);
        let failed = |source| ContextError::read(&whole, source);
        let entries = match fs::read_dir(&whole) {
            Ok(entries) => entries,
            Err(_) if self.ignore.leaves_out(&directory.to_string_lossy()) => return Ok(()),
            Err(source) => return Err(failed(source)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let metadata = entry.metadata().map_err(failed)?;
            self.visit(directory.join(entry.file_name()), &metadata)?;
        }
        Ok(())
    }

    fn visit(&mut self, path: PathBuf, metadata: &Metadata) -> Result<(), ContextError> {
        let text = path.to_string_lossy();
        let is_own = self.never_sent.contains(&&*text) && !metadata.is_dir();
        let stays_out = is_own || self.ignore.leaves_out(&text);
        if !stays_out {
            self.take_in(&path, metadata)?;
        }
        if metadata.is_dir() && (!stays_out || self.ignore.has_exceptions()) {
            self.open.push(path);
        }
        Ok(())
    }

    fn take_in(&mut self, path: &Path, metadata: &Metadata) -> Result<(), ContextError> {
        let whole = || self.root.join(path);
        let kind = metadata.file_type();
        let found = if kind.is_dir() {
            Found::Directory
        } else if kind.is_file() {
            file(metadata)
        } else if kind.is_symlink() {
            let target = fs::read_link(whole()).map_err(|source| ContextError::read(&whole(), source))?;
            Found::Link { target }
        } else if let Some(kind) = special(kind) {
            return Err(ContextError::Special { path: whole(), kind });
        } else {
            return Ok(());
        };
        let name = path
            .to_str()
            .ok_or_else(|| ContextError::Name { path: whole() })?;
        for (slash, _) in name.match_indices('/') {
            self.listing
                .entry(name[..slash].to_owned())
                .or_insert(Found::Directory);
        }
        self.listing.insert(name.to_owned(), found);
        Ok(())
    }
}

fn file(metadata: &Metadata) -> Found {
    let is_executable = metadata.permissions().mode() & 0o100 != 0;
    Found::File {
        mode: if is_executable {
            FileMode::Executable
        } else {
            FileMode::Plain
        },
        size: metadata.len(),
        stamp: FileStamp::new(metadata),
    }
}

/// What no image can be built from. A socket is not among them: it means nothing without its process.
fn special(kind: FileType) -> Option<SpecialFile> {
    if kind.is_fifo() {
        Some(SpecialFile::Pipe)
    } else if kind.is_socket() {
        None
    } else {
        Some(SpecialFile::Device)
    }
}
