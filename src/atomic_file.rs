//! Replaces files whole: a reader sees the old content or the new one, never a part.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The permissions of a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileAccess {
    /// Only its owner can read it: mode 600.
    Private,
    /// As any new file of the user: mode 666 less the umask.
    Default,
    /// Exactly these mode bits, whatever the umask.
    Mode(u32),
}

/// Replaces a file, and creates missing parent directories. After a power failure the file may be empty: use
/// [`write_durably`] for what must not be lost.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    stage(path, bytes, access)?.persist(path)?;
    Ok(())
}

/// Like [`write_atomically`], and waits until the content is on disk.
pub(crate) fn write_durably(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    let file = stage(path, bytes, access)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Like [`write_durably`], unless the file exists: then nothing is written.
pub(crate) fn create_durably(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    let file = stage(path, bytes, access)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => {
            created?;
            Ok(())
        }
    }
}

/// Writes a cache file. A failure is only logged, because nothing depends on a cache.
pub(crate) fn write_cache(path: &Path, bytes: &[u8]) {
    if let Err(error) = write_atomically(path, bytes, FileAccess::Private) {
        tracing::warn!(path = %path.display(), %error, "cannot write a cache file");
    }
}

/// Writes the content to a temporary file in the same directory.
fn stage(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<tempfile::NamedTempFile> {
    let dir = match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    fs::create_dir_all(dir)?;
    let mut builder = tempfile::Builder::new();
    if access == FileAccess::Default {
        builder.permissions(Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(dir)?;
    file.write_all(bytes)?;
    if let FileAccess::Mode(mode) = access {
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_the_permissions_asked_for_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/file");
        for (access, mode) in [(FileAccess::Private, 0o600), (FileAccess::Mode(0o755), 0o755)] {
            write_atomically(&path, b"old", access).unwrap();
            write_durably(&path, b"new", access).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            let found = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
