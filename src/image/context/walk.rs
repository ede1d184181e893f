//! Finds the files of a build context.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{ContextEntry, EXCLUDE, unreadable};
use crate::file_hashes::FileStamp;
use crate::image::dockerignore::DockerIgnore;
use crate::image::error::ImageError;

/// A file that was found but not read.
pub(super) struct FoundFile {
    pub(super) is_executable: bool,
    pub(super) size: u64,
    pub(super) stamp: FileStamp,
}

/// The entries of a context, by path. Links are not followed and sockets are skipped, as Docker does.
pub(super) struct Walk<'a> {
    root: &'a Path,
    ignore: &'a DockerIgnore,
    never_sent: &'a [&'a str],
    /// Directories to visit, relative to the root.
    open: Vec<PathBuf>,
    /// Directories and links.
    pub(super) entries: BTreeMap<String, ContextEntry>,
    pub(super) files: BTreeMap<String, FoundFile>,
}

impl<'a> Walk<'a> {
    /// Finds everything below `root` that is not excluded. The files `never_sent` are excluded whatever `.dockerignore`
    /// says.
    pub(super) fn run(
        root: &'a Path,
        ignore: &'a DockerIgnore,
        never_sent: &'a [&'a str],
    ) -> Result<Self, ImageError> {
        let mut walk = Self {
            root,
            ignore,
            never_sent,
            open: vec![PathBuf::new()],
            entries: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        while let Some(directory) = walk.open.pop() {
            walk.enter(&directory)?;
        }
        Ok(walk)
    }

    fn enter(&mut self, directory: &Path) -> Result<(), ImageError> {
        let whole = self.root.join(directory);
        let entries = match fs::read_dir(&whole) {
            Ok(entries) => entries,
            Err(_) if self.ignore.excludes(&directory.to_string_lossy()) => return Ok(()),
            Err(error) => return Err(unreadable(&whole)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(unreadable(&whole))?;
            let metadata = entry.metadata().map_err(unreadable(&whole))?;
            self.visit(directory.join(entry.file_name()), &metadata)?;
        }
        Ok(())
    }

    fn visit(&mut self, path: PathBuf, metadata: &Metadata) -> Result<(), ImageError> {
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

    fn add(&mut self, path: &Path, metadata: &Metadata) -> Result<(), ImageError> {
        let kind = metadata.file_type();
        // A socket means nothing without its process.
        if kind.is_socket() {
            return Ok(());
        }
        let whole = self.root.join(path);
        let refuse = |message: String| Err(ImageError::invalid(message).with_hint(EXCLUDE));
        if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
            let (path, kind) = (
                whole.display(),
                if kind.is_fifo() { "named pipe" } else { "device" },
            );
            return refuse(format!(
                "`{path}` is a {kind}, which a build context cannot contain"
            ));
        }
        let Some(name) = path.to_str() else {
            return refuse(format!("the name of `{}` is not UTF-8", whole.display()));
        };
        for (slash, _) in name.match_indices('/') {
            let above = self.entries.entry(name[..slash].to_owned());
            above.or_insert(ContextEntry::Directory);
        }
        if kind.is_file() {
            let file = FoundFile {
                is_executable: metadata.permissions().mode() & 0o100 != 0,
                size: metadata.len(),
                stamp: FileStamp::new(metadata),
            };
            self.files.insert(name.to_owned(), file);
        } else {
            let entry = if kind.is_symlink() {
                let target = fs::read_link(&whole).map_err(unreadable(&whole))?;
                ContextEntry::Link { target }
            } else {
                ContextEntry::Directory
            };
            self.entries.insert(name.to_owned(), entry);
        }
        Ok(())
    }
}
