//! The guest program as a file on the host, which sandboxes see read-only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::SandboxError;
use crate::atomic_file::{FileAccess, write_atomically};
use crate::guest;

/// Executable but not readable: the kernel then protects the running guest from other processes of its user.
const MODE: u32 = 0o111;

/// The path of the guest program. The error says why these sandboxes have no guest.
pub(super) type GuestFile = Result<PathBuf, &'static str>;

/// Writes the guest below `dir` unless it exists, for sandboxes of this processor architecture. The name of the file
/// contains the version of the guest.
pub(super) fn install(dir: &Path, arch: &str) -> Result<GuestFile, SandboxError> {
    let program = match guest_program(arch) {
        Ok(program) => program,
        Err(reason) => return Ok(Err(reason)),
    };
    let written = write_guest(dir, program).map(Ok);
    written.map_err(|error| SandboxError::host("write the guest program to", dir, error))
}

/// The guest program for a processor architecture. The error is the reason why it does not exist.
pub(super) fn guest_program(arch: &str) -> Result<&'static [u8], &'static str> {
    match guest::PROGRAM {
        None => Err("this ralph was built without its guest program"),
        Some(_) if arch != host_arch() => Err("the sandbox has another processor architecture than the host"),
        Some(program) => Ok(program),
    }
}

fn write_guest(dir: &Path, program: &[u8]) -> io::Result<PathBuf> {
    let file = dir.join(format!("guest-{:016x}", guest::VERSION));
    if !fs::metadata(&file).is_ok_and(|found| found.len() == program.len() as u64) {
        write_atomically(&file, program, FileAccess::Mode(MODE))?;
    }
    Ok(file)
}

/// The processor architecture of this host, as engines name it.
pub(super) fn host_arch() -> &'static str {
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
    fn a_truncated_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let Ok(file) = install(dir.path(), host_arch()).unwrap() else {
            return assert_eq!(guest::PROGRAM, None);
        };
        let installed = fs::metadata(&file).unwrap();
        assert_eq!(installed.permissions().mode() & 0o777, MODE);
        fs::remove_file(&file).unwrap();
        fs::write(&file, b"half").unwrap();
        assert!(install(dir.path(), host_arch()).unwrap().is_ok());
        assert_eq!(fs::metadata(&file).unwrap().len(), installed.len());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn another_architecture_has_no_guest() {
        let dir = tempfile::tempdir().unwrap();
        assert!(install(dir.path(), "s390x").unwrap().is_err());
    }
}
