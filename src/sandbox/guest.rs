//! The guest's file on the host, which sandboxes see and none can change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::atomic_file::{FileAccess, write_atomically};
use crate::guest;

/// May be run and not read, by anybody: so the system keeps what runs it closed to the other processes of its user.
const MODE: u32 = 0o111;

/// The guest, or why there is none for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    /// Its file on the host.
    Here(PathBuf),
    /// There is none.
    Missing(&'static str),
}

impl Guest {
    /// Puts the guest's file below `dir`, unless it is there, for sandboxes on processors of this kind, as engines name
    /// it. The file's name changes when the guest does.
    pub(super) fn put(dir: &Path, processor: &str) -> io::Result<Self> {
        let Some(program) = guest::PROGRAM else {
            return Ok(Self::Missing("this ralph was built without its guest"));
        };
        if processor != arch() {
            return Ok(Self::Missing(
                "the sandbox's processor is not of this machine's kind",
            ));
        }
        let file = dir.join(format!("guest-{:016x}", guest::VERSION));
        let whole = |file: &Path| fs::metadata(file).is_ok_and(|found| found.len() == program.len() as u64);
        if !whole(&file) {
            write_atomically(&file, program, FileAccess::Mode(MODE))?;
        }
        Ok(Self::Here(file))
    }
}

/// This machine's processor, as engines name it.
pub(super) fn arch() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "amd64"
    } else if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "(another)"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_is_put_there_once_and_mended_when_it_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let Guest::Here(file) = Guest::put(dir.path(), arch()).unwrap() else {
            return assert_eq!(guest::PROGRAM, None);
        };
        let made = fs::metadata(&file).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, MODE);
        fs::remove_file(&file).unwrap();
        fs::write(&file, b"half").unwrap();
        Guest::put(dir.path(), arch()).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), made.len());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_processor_of_another_kind_has_no_guest() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            Guest::put(dir.path(), "s390x").unwrap(),
            Guest::Missing(_)
        ));
    }
}
