//! Removes directory trees, following no symlinks.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, renameat, unlinkat};
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
        Err(refused @ (Errno::ISDIR | Errno::PERM)) => match make_writable(dir, name) {
            Err(Errno::NOTDIR) => Err(refused),
            made => made.map(|()| true),
        },
        Err(error) => Err(error),
    }
}

/// Makes a directory writable, and nothing else: the agent may have put a symlink to a file of the host in its place. Only
/// new kernels can change the mode of a name without following it, so the directory itself is opened.
#[cfg(target_os = "linux")]
fn make_writable(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{OFlags, chmod, openat};

    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(dir, name, flags, Mode::empty())?;
    chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)
}

/// Makes a directory writable, and nothing else: the agent may have put a symlink to a file of the host in its place.
#[cfg(not(target_os = "linux"))]
fn make_writable(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_that_cannot_be_read_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("closed/below")).unwrap();
        fs::set_permissions(tree.join("closed"), Permissions::from_mode(0o0)).unwrap();
        remove_all(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_symlink_in_place_of_a_directory_changes_no_mode_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::set_permissions(&elsewhere, Permissions::from_mode(0o755)).unwrap();
        symlink(&elsewhere, dir.path().join("link")).unwrap();
        let parent = fs::File::open(dir.path()).unwrap();
        let _ = make_writable(parent.as_fd(), OsStr::new("link"));
        assert_eq!(
            fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777,
            0o755
        );
    }

    #[test]
    fn concurrent_removals_all_succeed() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let tree = dir.path().join(round.to_string());
            for number in 0..20 {
                let deep = tree.join(format!("{number}/below/further"));
                fs::create_dir_all(&deep).unwrap();
                fs::write(deep.join("file"), "text").unwrap();
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
