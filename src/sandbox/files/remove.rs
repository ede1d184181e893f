//! Removes directory trees, following no symlinks.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, chmodat, renameat, unlinkat};
use rustix::io::Errno;

use super::lookup::open_dir;
use super::names;

/// How often to start again while another process removes the same directory.
const ATTEMPTS: usize = 50;

/// Removes a directory of the host and everything in it, if it exists.
pub(in crate::sandbox) fn remove_all(dir: &Path) -> io::Result<()> {
    // Two processes may remove the same orphan at once. What one of them does not find any more, the other has removed
    // or moved.
    for _ in 0..ATTEMPTS {
        match remove_tree(rustix::fs::CWD, dir.as_os_str()) {
            Err(Errno::NOENT | Errno::NOTEMPTY) => {}
            result => return Ok(result?),
        }
    }
    Ok(remove_tree(rustix::fs::CWD, dir.as_os_str())?)
}

/// Removes a file, a symlink or a whole directory, if it exists.
///
/// At most two directories are open at a time, however deep the tree is: subdirectories are moved to the top before
/// they are emptied.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    if !remove_unless_dir(parent, name)? {
        return Ok(());
    }
    let top = open_dir(parent, name)?;
    let mut left = remove_files(top.as_fd(), top.as_fd())?;
    while let Some(name) = left.pop() {
        let dir = open_dir(top.as_fd(), &name)?;
        left.extend(remove_files(dir.as_fd(), top.as_fd())?);
        unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Removes the files of a directory and moves its subdirectories to `top`. Returns their new names.
fn remove_files(dir: BorrowedFd<'_>, top: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let mut moved = Vec::new();
    for name in names(dir)? {
        if remove_unless_dir(dir, &name)? {
            let new_name = OsString::from(format!(".{:016x}", fastrand::u64(..)));
            renameat(dir, &name, top, &new_name)?;
            moved.push(new_name);
        }
    }
    Ok(moved)
}

/// Removes anything but a directory. Makes a directory writable, and returns whether it is one.
fn remove_unless_dir(dir: BorrowedFd<'_>, name: &OsStr) -> Result<bool, Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(false),
        // The errors for a directory on Linux and in POSIX.
        Err(Errno::ISDIR | Errno::PERM) => {
            chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_removals_all_succeed() {
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
