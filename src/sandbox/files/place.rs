//! Finds what a path inside a directory means without ever leaving that directory.
//!
//! The agent can plant symlinks, so no path is handed to the kernel whole: each component is opened by itself, below
//! the directory that the one before it led to, and a symlink is read and followed here. `..` goes back to the
//! directory we came from, which is held open. Nothing that is renamed or replaced meanwhile can lead outside.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, mkdirat, open, openat, readlinkat};
use rustix::io::Errno;

use super::{FileError, FileOwner};

/// As many symlinks as the kernel itself would follow.
const LINKS_LIMIT: u32 = 40;

/// A directory inside, held open, and a name in it; the name is `.` when the path means the directory itself.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

/// What to do with a symlink at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// Go where it leads.
    Followed,
    /// The link itself is meant.
    Itself,
}

/// What to do about directories on the way that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parents {
    Expected,
    Made,
}

/// The directory that no path leads out of.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    /// Who gets what is made in it; whoever makes it, unless it is said.
    pub(super) owner: Option<FileOwner>,
}

impl Place {
    /// Finds `path`, absolute or relative to `root`. Whether something is there is left to the caller.
    pub(super) fn find(root: &Root, path: &Path, last: Last, parents: Parents) -> Result<Self, FileError> {
        let inside = if path.is_absolute() {
            path.strip_prefix(&root.path).map_err(|_| FileError::Outside)?
        } else {
            path
        };
        let mut walk = Walk::begin(root)?;
        walk.expand(inside)?;
        while let Some(step) = walk.ahead.pop_front() {
            if step == ".." {
                walk.below.pop().ok_or(FileError::Outside)?;
                continue;
            }
            let is_last = walk.ahead.is_empty();
            if is_last && last == Last::Itself {
                return Ok(walk.end_at(step));
            }
            match walk.link_target(&step)? {
                Some(target) => walk.follow(&target)?,
                None if is_last => return Ok(walk.end_at(step)),
                None => walk.enter(&step, parents)?,
            }
        }
        Ok(walk.end_at(OsString::from(".")))
    }
}

/// Opens a directory, but no symlink to one.
pub(super) fn open_dir(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(dir, name, DIRECTORY, Mode::empty())
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

struct Walk {
    root: OwnedFd,
    owner: Option<FileOwner>,
    /// The directories from the root to where we are.
    below: Vec<OwnedFd>,
    /// The components still to come.
    ahead: VecDeque<OsString>,
    links_left: u32,
}

impl Walk {
    fn begin(root: &Root) -> Result<Self, FileError> {
        let opened = match open(&root.path, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Err(FileError::Gone),
            opened => opened?,
        };
        Ok(Self {
            root: opened,
            owner: root.owner,
            below: Vec::new(),
            ahead: VecDeque::new(),
            links_left: LINKS_LIMIT,
        })
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.below.last().unwrap_or(&self.root).as_fd()
    }

    /// Puts the components of a relative path before those still to come.
    fn expand(&mut self, path: &Path) -> Result<(), FileError> {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.ahead.push_front(name.to_owned()),
                Component::ParentDir => self.ahead.push_front(OsString::from("..")),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(FileError::Outside),
            }
        }
        Ok(())
    }

    /// Where a symlink leads; `None` for anything else, and for nothing.
    fn link_target(&self, name: &OsStr) -> Result<Option<OsString>, FileError> {
        match readlinkat(self.here(), name, Vec::new()) {
            Ok(target) => Ok(Some(OsStr::from_bytes(target.as_bytes()).to_owned())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn follow(&mut self, target: &OsStr) -> Result<(), FileError> {
        self.links_left = self.links_left.checked_sub(1).ok_or(Errno::LOOP)?;
        self.expand(Path::new(target))
    }

    fn enter(&mut self, name: &OsStr, parents: Parents) -> Result<(), FileError> {
        let entered = match open_dir(self.here(), name) {
            Err(Errno::NOENT) if parents == Parents::Made => {
                make_dir(self.here(), name, self.owner)?;
                open_dir(self.here(), name)
            }
            opened => opened,
        };
        self.below.push(entered?);
        Ok(())
    }

    fn end_at(mut self, name: OsString) -> Place {
        Place {
            dir: self.below.pop().unwrap_or(self.root),
            name,
        }
    }
}

/// Makes a directory; one that somebody else just made is fine.
pub(super) fn make_dir(dir: BorrowedFd<'_>, name: &OsStr, owner: Option<FileOwner>) -> Result<(), Errno> {
    match mkdirat(dir, name, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => return Ok(()),
        made => made?,
    }
    match owner {
        Some(owner) => owner.take(open_dir(dir, name)?),
        None => Ok(()),
    }
}
