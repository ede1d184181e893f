//! What is left behind: processes, and texts in files.

use std::fs;
use std::path::{Path, PathBuf};

/// The processes of the host that have this on their command line, including those in containers.
pub fn processes_with(mark: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.map(|entry| entry.path());
    processes
        .filter(|process| holds(&process.join("cmdline"), mark))
        .collect()
}

/// The files below a directory that hold this text.
pub fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if kind.is_file() && holds(&entry.path(), text) {
            found.push(entry.path());
        }
    }
    found
}

/// Whether a file holds this text; one that is gone does not.
fn holds(file: &Path, text: &str) -> bool {
    let bytes = fs::read(file).unwrap_or_default();
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}
