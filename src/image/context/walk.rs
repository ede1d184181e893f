//! Finds the files of a build context.

use std::collections::BTreeMap;
use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{BuildContextError, FileMode, SpecialFile};
use crate::file_hashes::FileStamp;
use crate::image::dockerignore::DockerIgnore;

/// The entries of a context, sorted by the bytes of their paths.
pub(super) type ContextListing = BTreeMap<String, WalkedEntry>;

/// An entry that was found but not read.
pub(super) enum WalkedEntry {
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

/// Lists everything below `root` that is not excluded. Links are not followed and sockets are skipped, as Docker does. The
/// files `never_sent` are excluded whatever `.dockerignore` says.
pub(super) fn list(
    root: &Path,
    ignore: &DockerIgnore,
    never_sent: &[&str],
) -> Result<ContextListing, BuildContextError> {
    let mut walk = Walk {
        root,
        ignore,
        never_sent,
        listing: ContextListing::new(),
        open: vec![PathBuf::new()],
    };
    while let Some(directory) = walk.open.pop() {
        walk.enter(&directory)?;
    }
    Ok(walk.listing)
}

struct Walk<'a> {
    root: &'a Path,
    ignore: &'a DockerIgnore,
    never_sent: &'a [&'a str],
    listing: ContextListing,
    /// Directories to visit, relative to the root.
    open: Vec<PathBuf>,
}

impl Walk<'_> {
    fn enter(&mut self, directory: &Path) -> Result<(), BuildContextError> {
        let whole = self.root.join(directory);
        let failed = |source| BuildContextError::read(&whole, source);
        let entries = match fs::read_dir(&whole) {
            Ok(entries) => entries,
            Err(_) if self.ignore.excludes(&directory.to_string_lossy()) => return Ok(()),
            Err(source) => return Err(failed(source)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let metadata = entry.metadata().map_err(failed)?;
            self.visit(directory.join(entry.file_name()), &metadata)?;
        }
        Ok(())
    }

    fn visit(&mut self, path: PathBuf, metadata: &Metadata) -> Result<(), BuildContextError> {
        let text = path.to_string_lossy();
        let is_own = self.never_sent.contains(&&*text) && !metadata.is_dir();
        let is_excluded = is_own || self.ignore.excludes(&text);
        if !is_excluded {
            self.add(&path, metadata)?;
        }
        if metadata.is_dir() && (!is_excluded || self.ignore.has_exceptions()) {
            self.open.push(path);
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, metadata: &Metadata) -> Result<(), BuildContextError> {
        let whole = || self.root.join(path);
        let kind = metadata.file_type();
        let found = if kind.is_dir() {
            WalkedEntry::Directory
        } else if kind.is_file() {
            file(metadata)
        } else if kind.is_symlink() {
            let target =
                fs::read_link(whole()).map_err(|source| BuildContextError::read(&whole(), source))?;
            WalkedEntry::Link { target }
        } else if let Some(kind) = special(kind) {
            return Err(BuildContextError::Special { path: whole(), kind });
        } else {
            return Ok(());
        };
        let name = path
            .to_str()
            .ok_or_else(|| BuildContextError::Name { path: whole() })?;
        for (slash, _) in name.match_indices('/') {
            self.listing
                .entry(name[..slash].to_owned())
                .or_insert(WalkedEntry::Directory);
        }
        self.listing.insert(name.to_owned(), found);
        Ok(())
    }
}

fn file(metadata: &Metadata) -> WalkedEntry {
    let is_executable = metadata.permissions().mode() & 0o100 != 0;
    WalkedEntry::File {
        mode: if is_executable {
            FileMode::Executable
        } else {
            FileMode::Plain
        },
        size: metadata.len(),
        stamp: FileStamp::new(metadata),
    }
}

/// A kind of file that cannot be sent. A socket is skipped instead, because it means nothing without its process.
fn special(kind: FileType) -> Option<SpecialFile> {
    if kind.is_fifo() {
        Some(SpecialFile::Pipe)
    } else if kind.is_socket() {
        None
    } else {
        Some(SpecialFile::Device)
    }
}
