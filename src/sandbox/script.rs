//! Words for a shell.

use std::fmt::Write;
use std::path::Path;

/// A line by which a shell enters a directory and takes these variables.
pub(super) fn surroundings<'a>(
    dir: &Path,
    env: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> String {
    let mut line = format!("cd -- {}", quoted(&dir.to_string_lossy()));
    for (name, value) in env {
        // Writing to a string cannot fail.
        let _ = write!(line, " && export {name}={}", quoted(value));
    }
    line
}

/// A text as one word.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
