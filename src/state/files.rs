//! Writes that survive a crash: a whole file or the old one, and logs whose last line is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::StateError;
use crate::atomic_file::{FileAccess, write_durably};

/// The result of an operation on a file or directory; `None` if that does not exist.
pub(crate) fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The paths of the entries of a directory; none if it does not exist.
pub(crate) fn entries_of(dir: &Path) -> Result<Vec<PathBuf>, StateError> {
    let Some(entries) = if_exists(fs::read_dir(dir)).map_err(StateError::io("list", dir))? else {
        return Ok(Vec::new());
    };
    entries
        .map(|entry| {
            entry
                .map(|entry| entry.path())
                .map_err(StateError::io("list", dir))
        })
        .collect()
}

/// Replaces a file atomically. A reader sees the old or the new content, also after a crash.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
    write_durably(path, bytes, FileAccess::Private).map_err(StateError::io("write", path))
}

/// A value as JSON. `path` is the file it is for, which only errors name.
pub(crate) fn to_json<T: Serialize>(path: impl AsRef<Path>, value: &T) -> Result<Vec<u8>, StateError> {
    serde_json::to_vec(value).map_err(StateError::encode(path.as_ref()))
}

/// Appends to a file, in one write.
pub(crate) fn append(path: &Path, text: &str) -> Result<(), StateError> {
    open_to_append(path)?
        .write_all(text.as_bytes())
        .map_err(StateError::io("append to", path))
}

/// Opens a file, or creates it, so that every write adds to its end.
pub(crate) fn open_to_append(path: &Path) -> Result<File, StateError> {
    let open = OpenOptions::new().append(true).create(true).open(path);
    open.map_err(StateError::io("open", path))
}

/// Removes a last line without a line break, which is a write that a crash interrupted. Returns the number of bytes removed;
/// `None` when there was nothing to repair or no file.
pub fn repair_log(path: &Path) -> Result<Option<u64>, StateError> {
    let opened = if_exists(OpenOptions::new().read(true).write(true).open(path));
    let Some(mut file) = opened.map_err(StateError::io("open", path))? else {
        return Ok(None);
    };
    let length = file.metadata().map_err(StateError::io("read", path))?.len();
    let whole = whole_length(&mut file, length).map_err(StateError::io("read", path))?;
    if whole == length {
        return Ok(None);
    }
    file.set_len(whole).map_err(StateError::io("repair", path))?;
    file.sync_data().map_err(StateError::io("sync", path))?;
    Ok(Some(length - whole))
}

/// The length up to the last line break, inclusive. Reads backwards in blocks.
pub(crate) fn whole_length(file: &mut File, length: u64) -> std::io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        let mut block = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        Read::take(&mut *file, end - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_log_is_repaired_to_its_last_whole_line(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            fs::write(&path, &bytes).unwrap();
            let repaired = repair_log(&path).unwrap();
            let left = fs::read(&path).unwrap();
            prop_assert!(bytes.starts_with(&left));
            prop_assert!(left.is_empty() || left.ends_with(b"\n"));
            prop_assert!(!bytes[left.len()..].contains(&b'\n'));
            let torn = (bytes.len() - left.len()) as u64;
            prop_assert_eq!(repaired, (torn > 0).then_some(torn));
            prop_assert_eq!(repair_log(&path).unwrap(), None);
        }
    }

    #[test]
    fn a_torn_line_longer_than_a_block_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, format!("first\n{}", "x".repeat(200_000))).unwrap();
        assert_eq!(repair_log(&path).unwrap(), Some(200_000));
        assert_eq!(fs::read_to_string(&path).unwrap(), "first\n");
    }

    #[test]
    fn a_log_that_is_not_there_needs_no_repair() {
        assert_eq!(repair_log(Path::new("/nonexistent/log")).unwrap(), None);
    }
}
