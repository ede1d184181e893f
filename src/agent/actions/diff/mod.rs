//! Unified diffs of one file.

mod apply;
mod header;
mod hunk;
mod parse;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::path::RelPath;

pub use apply::{PatchError, PatchedFile};

/// A unified diff of one file.
///
/// Models miscount, so line numbers only say where the search for a hunk begins and counts are hints. The context and the
/// removed lines have to be in the file exactly.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Patch {
    text: String,
    effect: PatchEffect,
    /// The file names in the `---` and `+++` lines, without `/dev/null`.
    names: Vec<String>,
    hunks: Vec<Hunk>,
}

/// Why a text is not a unified diff of one file. `line` is a line of the diff, from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatchFormatError {
    /// A line that is not part of a unified diff.
    #[error("line {line} of the diff is {found:?}: expected {expected}")]
    Unexpected {
        /// The line of the diff.
        line: usize,
        /// The start of the line.
        found: String,
        /// What is allowed there.
        expected: &'static str,
    },
    /// A line after `\ No newline at end of file`.
    #[error("line {line} of the diff comes after `\\ No newline at end of file`: nothing can follow there")]
    AfterEndOfFile {
        /// The line of the diff.
        line: usize,
    },
    /// Something other than a change of text.
    #[error("line {line} of the diff asks for {what}, which a patch cannot do here: {instead}")]
    Unsupported {
        /// The line of the diff.
        line: usize,
        /// What the line asks for.
        what: &'static str,
        /// How to do it instead.
        instead: &'static str,
    },
    /// The diff has a second file.
    #[error("line {line} of the diff begins a second file: give each file a `patch` action of its own")]
    SeveralFiles {
        /// The line of the diff.
        line: usize,
    },
    /// The diff changes nothing.
    #[error("the diff changes nothing: it has no hunk with a `+` or `-` line")]
    NoChange,
    /// A hunk that changes nothing.
    #[error("hunk {hunk} changes nothing: it has no `+` or `-` line")]
    EmptyHunk {
        /// The number of the hunk, from 1.
        hunk: usize,
    },
    /// A new file (`--- /dev/null`) with lines to keep or remove.
    #[error("hunk {hunk} keeps or removes lines of a file that `--- /dev/null` says is new")]
    OldLinesInNewFile {
        /// The number of the hunk, from 1.
        hunk: usize,
    },
    /// The diff names another file than the action.
    #[error("the diff names `{named}`, but the action's path is `{path}`")]
    OtherFile {
        /// The name in the diff.
        named: String,
        /// The path of the action.
        path: RelPath,
    },
}

impl Patch {
    /// The value of `format` in the JSON schema.
    pub(super) const FORMAT: &'static str = "unified-diff-of-one-file";

    /// Parses a diff. The file names and the numbers between `@@` and `@@` are optional.
    pub fn parse(text: &str) -> Result<Self, PatchFormatError> {
        parse::parse(text)
    }

    /// Checks that every file name in the diff is this path, with or without `a/` and `b/`.
    pub fn check_names(&self, path: &RelPath) -> Result<(), PatchFormatError> {
        let is_path = |name: &str| RelPath::parse(name).is_ok_and(|name| name == *path);
        let agrees = |name: &&String| {
            let below = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/"));
            is_path(name) || below.is_some_and(is_path)
        };
        match self.names.iter().find(|name| !agrees(name)) {
            None => Ok(()),
            Some(named) => Err(PatchFormatError::OtherFile {
                named: named.clone(),
                path: path.clone(),
            }),
        }
    }

    /// Applies the diff to a file's content. `None` is a file that does not exist.
    pub fn apply(&self, original: Option<&[u8]>) -> Result<PatchedFile, PatchError> {
        apply::apply(self, original)
    }

    /// The diff as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number of hunks.
    #[must_use]
    pub fn hunk_count(&self) -> usize {
        self.hunks.len()
    }
}

/// Omits the content: diffs are long.
impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patch({} hunks, {} bytes)", self.hunks.len(), self.text.len())
    }
}

impl TryFrom<String> for Patch {
    type Error = PatchFormatError;

    fn try_from(text: String) -> Result<Self, PatchFormatError> {
        Self::parse(&text)
    }
}

impl From<Patch> for String {
    fn from(patch: Patch) -> Self {
        patch.text
    }
}

impl JsonSchema for Patch {
    fn schema_name() -> Cow<'static, str> {
        "Patch".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": Self::FORMAT })
    }
}

/// Whether a diff changes, creates or deletes its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchEffect {
    Change,
    Create,
    Delete,
}

/// One `@@` section.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk {
    /// Its number, from 1.
    number: usize,
    /// The `@@` line.
    header: String,
    /// The first line in the old file according to the header, from 1; `None` if the header has no numbers.
    start: Option<usize>,
    lines: Vec<DiffLine>,
}

impl Hunk {
    /// The kept and removed lines.
    fn old_lines(&self) -> impl Iterator<Item = &DiffLine> {
        self.lines.iter().filter(|line| line.op != LineOp::Add)
    }
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DiffLine {
    op: LineOp,
    /// The text without its line feed. A carriage return is part of it.
    text: String,
    end: LineEnd,
}

/// What happens to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineOp {
    Keep,
    Remove,
    Add,
}

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    LineBreak,
    /// The file ends here, without a line break (`\ No newline at end of file`).
    File,
}
