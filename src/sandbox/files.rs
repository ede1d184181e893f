//! The files of a sandbox that is, or has, a directory of the host. Everything here blocks.

mod place;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chmodat, fchown, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use self::place::{Last, Parents, Place, Root, make_dir, open_dir};
use super::{DirEntry, SandboxError};

/// The permission bits of a file that nobody gave any.
const MODE_DEFAULT: u32 = 0o644;

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;

/// Why a file operation failed, without the names that only the caller knows.
#[derive(Debug)]
pub(super) enum FileError {
    /// The path leads out of the root.
    Outside,
    /// The root itself is not there.
    Gone,
    /// The file is longer than was asked for.
    TooLong {
        /// What was asked for.
        limit: u64,
    },
    /// The file on the other side, outside the sandbox, is the trouble.
    Host {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Anything else.
    Io(io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl FileError {
    /// The error as callers of a sandbox see it: what was tried on which path, in which sandbox.
    pub(super) fn named(self, operation: &'static str, path: &Path, sandbox: &str) -> SandboxError {
        match self {
            Self::Outside => SandboxError::outside(path),
            Self::Gone => SandboxError::gone(sandbox),
            Self::TooLong { limit } => SandboxError::too_long(path, limit),
            Self::Host {
                operation,
                path,
                source,
            } => SandboxError::host(operation, &path, source),
            Self::Io(source) => SandboxError::file(operation, path, source),
        }
    }
}

/// The files below a root. Paths are absolute or relative to it.
#[derive(Clone, Debug)]
pub(super) struct Files {
    root: Root,
    staging: PathBuf,
}

/// Who the files of a sandbox belong to, where that is not who this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileOwner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl FileOwner {
    /// Gives an open file to this owner.
    fn take(self, file: impl AsFd) -> Result<(), Errno> {
        fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }
}

impl Files {
    pub(super) fn new(root: &Path, staging: &Path) -> Self {
        Self {
            root: Root {
                path: root.to_owned(),
                owner: None,
            },
            staging: staging.to_owned(),
        }
    }

    /// Gives whatever is made from now on to this owner.
    pub(super) fn owned_by(mut self, owner: Option<FileOwner>) -> Self {
        self.root.owner = owner;
        self
    }

    pub(super) fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
        let (file, length) = self.open_to_read(path, limit)?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        // It may have grown since it was measured.
        match file.take(limit.saturating_add(1)).read_to_end(&mut bytes)? as u64 {
            read if read > limit => Err(FileError::TooLong { limit }),
            _ => Ok(bytes),
        }
    }

    pub(super) fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
        self.replace(path, mode, |file| file.write_all(bytes))
    }

    pub(super) fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let place = self.place(path, Last::Followed, Parents::Made)?;
        let append = OFlags::WRONLY | OFlags::APPEND;
        let mut file = match open_file(&place, append | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => {
                file.set_permissions(permissions(MODE_DEFAULT))?;
                self.give(&file)?;
                file
            }
            Err(Errno::EXIST) => regular(open_file(&place, append)?)?.0,
            Err(error) => return Err(error.into()),
        };
        Ok(file.write_all(bytes)?)
    }

    pub(super) fn list(&self, path: &Path) -> Result<Vec<DirEntry>, FileError> {
        let place = self.place(path, Last::Followed, Parents::Expected)?;
        let dir = open_dir(place.dir.as_fd(), &place.name)?;
        let mut entries = Vec::new();
        for name in names(dir.as_fd())? {
            match statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => entries.push(entry_of(&name.to_string_lossy(), &stat)?),
                Err(Errno::NOENT) => {} // Removed since the directory was read.
                Err(error) => return Err(error.into()),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    pub(super) fn mkdir(&self, path: &Path) -> Result<(), FileError> {
        let place = self.place(path, Last::Followed, Parents::Made)?;
        make_dir(place.dir.as_fd(), &place.name, self.root.owner)?;
        open_dir(place.dir.as_fd(), &place.name)?;
        Ok(())
    }

    pub(super) fn remove(&self, path: &Path) -> Result<(), FileError> {
        match self.place(path, Last::Itself, Parents::Expected) {
            Ok(place) if place.name == "." => Err(FileError::Io(io::ErrorKind::InvalidInput.into())),
            Ok(place) => Ok(remove_tree(place.dir.as_fd(), &place.name)?),
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn upload(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        let mut source = File::open(from).map_err(|error| on_host("read", from, error))?;
        let mode = source.metadata()?.mode();
        self.replace(to, mode, |file| io::copy(&mut source, file).map(drop))
    }

    pub(super) fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), FileError> {
        let (file, _) = self.open_to_read(from, limit)?;
        let mode = file.metadata()?.mode();
        let beside = to.parent().unwrap_or(Path::new("."));
        let mut copy = NamedTempFile::new_in(beside).map_err(|error| on_host("write", to, error))?;
        if io::copy(&mut file.take(limit.saturating_add(1)), copy.as_file_mut())? > limit {
            return Err(FileError::TooLong { limit });
        }
        copy.as_file().set_permissions(permissions(mode))?;
        copy.persist(to)
            .map_err(|error| on_host("write", to, error.error))?;
        Ok(())
    }

    fn place(&self, path: &Path, last: Last, parents: Parents) -> Result<Place, FileError> {
        Place::find(&self.root, path, last, parents)
    }

    fn give(&self, file: &File) -> Result<(), Errno> {
        self.root.owner.map_or(Ok(()), |owner| owner.take(file))
    }

    fn open_to_read(&self, path: &Path, limit: u64) -> Result<(File, u64), FileError> {
        let place = self.place(path, Last::Followed, Parents::Expected)?;
        match regular(open_file(&place, OFlags::RDONLY)?)? {
            (_, length) if length > limit => Err(FileError::TooLong { limit }),
            file => Ok(file),
        }
    }

    /// Makes a file aside, then puts it where `path` leads, so that nobody sees half of it.
    fn replace(
        &self,
        path: &Path,
        mode: u32,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), FileError> {
        let place = self.place(path, Last::Followed, Parents::Made)?;
        let mut aside = NamedTempFile::new_in(&self.staging)?;
        fill(aside.as_file_mut())?;
        self.give(aside.as_file())?;
        // After the owner: whoever gives a file away loses some of its bits.
        aside.as_file().set_permissions(permissions(mode))?;
        renameat(rustix::fs::CWD, aside.path(), &place.dir, &place.name)?;
        Ok(())
    }
}

fn on_host(operation: &'static str, path: &Path, source: io::Error) -> FileError {
    FileError::Host {
        operation,
        path: path.to_owned(),
        source,
    }
}

/// Removes a directory of the host and everything in it; one that is not there is fine.
pub(super) fn remove_all(dir: &Path) -> io::Result<()> {
    // Somebody else may be about to do the same, as when two processes find what a third one left. What one of them does
    // not find any more, the other has removed or moved.
    for _ in 0..TRIES {
        match remove_tree(rustix::fs::CWD, dir.as_os_str()) {
            Err(Errno::NOENT | Errno::NOTEMPTY) => {}
            done => return Ok(done?),
        }
    }
    Ok(remove_tree(rustix::fs::CWD, dir.as_os_str())?)
}

/// How often to begin again where two remove the same.
const TRIES: usize = 50;

/// Removes a file, a symlink or a whole directory, following no symlink. What is not there is fine.
///
/// However deep a directory is, two are open at a time: what is found in one is moved to the top before it is emptied.
fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match remove_unless_dir(parent, name)? {
        Removal::Done => return Ok(()),
        Removal::Directory => {}
    }
    let top = open_dir(parent, name)?;
    let mut left = empty(top.as_fd(), top.as_fd())?;
    while let Some(name) = left.pop() {
        let dir = open_dir(top.as_fd(), &name)?;
        left.extend(empty(dir.as_fd(), top.as_fd())?);
        unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Removes the files of a directory and moves its directories to `top`; returns their names there.
fn empty(dir: BorrowedFd<'_>, top: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let mut moved = Vec::new();
    for name in names(dir)? {
        match remove_unless_dir(dir, &name)? {
            Removal::Done => {}
            Removal::Directory => {
                let aside = OsString::from(format!(".{:016x}", fastrand::u64(..)));
                renameat(dir, &name, top, &aside)?;
                moved.push(aside);
            }
        }
    }
    Ok(moved)
}

enum Removal {
    Done,
    /// It is one, and may be written to now.
    Directory,
}

fn remove_unless_dir(dir: BorrowedFd<'_>, name: &OsStr) -> Result<Removal, Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(Removal::Done),
        // A directory, in the words of Linux and of POSIX.
        Err(Errno::ISDIR | Errno::PERM) => {
            chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            Ok(Removal::Directory)
        }
        Err(error) => Err(error),
    }
}

/// The names in a directory, without `.` and `..`.
fn names(dir: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    Dir::read_from(dir)?
        .map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned()))
        .filter(|name| !matches!(name, Ok(name) if name == "." || name == ".."))
        .collect()
}

/// Opens the file at a place. It never waits, as opening a named pipe would.
fn open_file(place: &Place, flags: OFlags) -> Result<File, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(&place.dir, &place.name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

fn permissions(mode: u32) -> Permissions {
    Permissions::from_mode(mode & PERMISSIONS)
}

/// The file and its length, when it is a file and no pipe, device or directory.
fn regular(file: File) -> io::Result<(File, u64)> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata.len()))
    } else if metadata.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn entry_of(name: &str, stat: &Stat) -> io::Result<DirEntry> {
    let nanoseconds = i32::try_from(stat.st_mtime_nsec).unwrap_or_default();
    #[allow(
        clippy::useless_conversion,
        reason = "the width differs from system to system"
    )]
    let mode = u32::from(stat.st_mode);
    Ok(DirEntry {
        name: name.to_owned(),
        is_dir: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        mode: mode & PERMISSIONS,
        mod_time: jiff::Timestamp::new(stat.st_mtime, nanoseconds).map_err(io::Error::other)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_several_remove_at_once_is_gone_for_all_of_them() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let tree = dir.path().join(round.to_string());
            for number in 0..20 {
                let deep = tree.join(format!("{number}/below/further"));
                std::fs::create_dir_all(&deep).unwrap();
                std::fs::write(deep.join("file"), "text").unwrap();
            }
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| remove_all(&tree).unwrap());
                }
            });
            assert!(!tree.exists());
        }
    }
}
