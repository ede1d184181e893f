//! The fuzz body of what scripts print in a sandbox about its files.

use std::path::Path;

use super::super::files::PERMISSIONS;
use super::super::scripted_files::parse_stat;
use super::volume_files::parse_entries;

/// The output of a script.
pub(crate) fn file_script(bytes: &[u8]) {
    let printed = &*String::from_utf8_lossy(bytes);
    if let Some((length, mode)) = parse_stat(printed) {
        assert_eq!(parse_stat(&format!("{length} {mode:o}\n")), Some((length, mode)));
    }
    let Some(entries) = parse_entries(printed) else {
        return;
    };
    assert!(entries.iter().map(|entry| entry.name.len()).sum::<usize>() <= printed.len());
    for entry in entries {
        assert_eq!(Path::new(&entry.name).file_name(), Some(entry.name.as_ref()));
        assert_eq!(Path::new(&entry.name).components().count(), 1, "{entry:?}");
        assert_eq!(entry.mode & !PERMISSIONS, 0);
    }
}
