//! Resolves a path below a root directory without ever leaving it.
//!
//! The agent can create symlinks, so the kernel never gets a whole path. Each component is opened below the directory
//! of the previous one, and symlinks are read and followed here. `..` goes back to the previous directory, which is
//! kept open. So renaming or replacing directories at the same time cannot lead outside.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, mkdirat, open, openat, readlinkat};
use rustix::io::Errno;

use super::{FileError, FileOwner};

/// The limit of the kernel for symlinks in a path.
const MAX_LINKS: u32 = 40;

/// An open directory below the root, and a name in it. The name is `.` for the directory itself.
#[derive(Debug)]
pub(super) struct ResolvedPath {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

/// How a path is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupMode {
    /// Follow a symlink as the last component.
    Follow,
    /// Follow it, and create missing parent directories.
    FollowAndCreate,
    /// Resolve to the link itself.
    KeepLink,
}

/// The directory that no path leads out of.
#[derive(Clone, Debug)]
pub(super) struct RootDir {
    pub(super) path: PathBuf,
    /// The owner of new files, if that is not the user of this process.
    pub(super) owner: Option<FileOwner>,
}

impl RootDir {
    /// Resolves a path relative to this directory. It need not exist.
    pub(super) fn resolve(&self, path: &Path, mode: LookupMode) -> Result<ResolvedPath, FileError> {
        let mut walk = PathWalk::begin(self)?;
        walk.expand(path)?;
        while let Some(step) = walk.rest.pop_front() {
            if step == ".." {
                walk.entered.pop().ok_or(FileError::Outside)?;
                continue;
            }
            let is_last = walk.rest.is_empty();
            if is_last && mode == LookupMode::KeepLink {
                return Ok(walk.end_at(step));
            }
            match walk.link_target(&step)? {
                Some(target) => walk.follow(&target)?,
                None if is_last => return Ok(walk.end_at(step)),
                None => walk.enter(&step, mode)?,
            }
        }
        Ok(walk.end_at(OsString::from(".")))
    }
}

/// Opens a directory. Fails for a symlink.
pub(super) fn open_dir(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(dir, name, DIRECTORY, Mode::empty())
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

struct PathWalk {
    root: OwnedFd,
    owner: Option<FileOwner>,
    /// The open directories from the root to the current one.
    entered: Vec<OwnedFd>,
    /// The components that are not resolved yet.
    rest: VecDeque<OsString>,
    links_left: u32,
}

impl PathWalk {
    fn begin(root: &RootDir) -> Result<Self, FileError> {
        let opened = match open(&root.path, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Err(FileError::Gone),
            opened => opened?,
        };
        Ok(Self {
            root: opened,
            owner: root.owner,
            entered: Vec::new(),
            rest: VecDeque::new(),
            links_left: MAX_LINKS,
        })
    }

    fn current(&self) -> BorrowedFd<'_> {
        self.entered.last().unwrap_or(&self.root).as_fd()
    }

    /// Inserts the components of a relative path before the rest.
    fn expand(&mut self, path: &Path) -> Result<(), FileError> {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.rest.push_front(name.to_owned()),
                Component::ParentDir => self.rest.push_front(OsString::from("..")),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(FileError::Outside),
            }
        }
        Ok(())
    }

    /// The target of a symlink; `None` if the name is not a symlink or does not exist.
    fn link_target(&self, name: &OsStr) -> Result<Option<OsString>, FileError> {
        match readlinkat(self.current(), name, Vec::new()) {
            Ok(target) => Ok(Some(OsStr::from_bytes(target.as_bytes()).to_owned())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn follow(&mut self, target: &OsStr) -> Result<(), FileError> {
        self.links_left = self.links_left.checked_sub(1).ok_or(Errno::LOOP)?;
        self.expand(Path::new(target))
    }

    fn enter(&mut self, name: &OsStr, mode: LookupMode) -> Result<(), FileError> {
        let entered = match open_dir(self.current(), name) {
            Err(Errno::NOENT) if mode == LookupMode::FollowAndCreate => {
                create_dir(self.current(), name, self.owner)?;
                open_dir(self.current(), name)
            }
            opened => opened,
        };
        self.entered.push(entered?);
        Ok(())
    }

    fn end_at(mut self, name: OsString) -> ResolvedPath {
        ResolvedPath {
            dir: self.entered.pop().unwrap_or(self.root),
            name,
        }
    }
}

/// Creates a directory unless it exists.
pub(super) fn create_dir(dir: BorrowedFd<'_>, name: &OsStr, owner: Option<FileOwner>) -> Result<(), Errno> {
    match mkdirat(dir, name, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => return Ok(()),
        made => made?,
    }
    match owner {
        Some(owner) => owner.give(open_dir(dir, name)?),
        None => Ok(()),
    }
}
