//! Unified diffs of one file: read strictly, applied where their context is found.

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

pub use apply::{Applied, PatchError};

/// A unified diff of one file.
///
/// The line numbers of a hunk are where its search begins and its counts are hints: people and models miscount. What
/// decides is the text of its context and of the lines it removes, and that must be in the file as written.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Patch {
    text: String,
    effect: Effect,
    /// The file names in the `---` and `+++` lines, without `/dev/null`.
    names: Vec<String>,
    hunks: Vec<Hunk>,
}

/// Why a text is no unified diff of one file. `line` counts the lines of the diff, from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatchFormatError {
    /// A line that belongs to no unified diff.
    #[error("line {line} of the diff is {found:?}: expected {expected}")]
    Unexpected {
        /// Where.
        line: usize,
        /// What is there, shortened.
        found: String,
        /// What may be there.
        expected: &'static str,
    },
    /// A line after the one that is said to end the file.
    #[error("line {line} of the diff comes after `\\ No newline at end of file`: nothing can follow there")]
    AfterEndOfFile {
        /// Where.
        line: usize,
    },
    /// Something else than a change of text.
    #[error("line {line} of the diff asks for {what}, which a patch cannot do here: {instead}")]
    Unsupported {
        /// Where.
        line: usize,
        /// What is asked for.
        what: &'static str,
        /// How to do it.
        instead: &'static str,
    },
    /// A second file.
    #[error("line {line} of the diff begins a second file: give each file a `patch` action of its own")]
    SeveralFiles {
        /// Where.
        line: usize,
    },
    /// Nothing that changes anything.
    #[error("the diff changes nothing: it has no hunk with a `+` or `-` line")]
    NoChange,
    /// A hunk that changes nothing.
    #[error("hunk {hunk} changes nothing: it has no `+` or `-` line")]
    EmptyHunk {
        /// Which one, from 1.
        hunk: usize,
    },
    /// A file that is said to be new (`--- /dev/null`) and yet has lines to keep or remove.
    #[error("hunk {hunk} keeps or removes lines of a file that `--- /dev/null` says is new")]
    OldLinesInNewFile {
        /// Which one, from 1.
        hunk: usize,
    },
    /// A name that is not the action's.
    #[error("the diff names `{named}`, but the action's path is `{path}`")]
    OtherFile {
        /// The name in the diff.
        named: String,
        /// The path of the action.
        path: RelPath,
    },
}

impl Patch {
    /// The name of this kind of text in the JSON schema.
    pub(super) const FORMAT: &'static str = "unified-diff-of-one-file";

    /// Reads a diff. The file names in it are optional; so are the numbers between `@@` and `@@`.
    pub fn parse(text: &str) -> Result<Self, PatchFormatError> {
        parse::parse(text)
    }

    /// Says whether every file name in the diff is this path, with or without `a/` and `b/`.
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

    /// Applies it to a file's content; `None` is a file that is not there.
    pub fn apply(&self, original: Option<&[u8]>) -> Result<Applied, PatchError> {
        apply::apply(self, original)
    }

    /// The diff as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many hunks it has.
    #[must_use]
    pub fn hunk_count(&self) -> usize {
        self.hunks.len()
    }
}

/// Shows no content: diffs are long.
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

/// What a diff does to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Change,
    Create,
    Delete,
}

/// One `@@` part.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk {
    /// Its number, from 1.
    number: usize,
    /// The `@@` line.
    header: String,
    /// The line of the old file where it says it begins, from 1; `None` when the header has no numbers.
    start: Option<usize>,
    lines: Vec<Line>,
}

impl Hunk {
    /// The lines that must be in the old file.
    fn old_lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.op != Op::Add)
    }
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    op: Op,
    /// The text without its line break (a carriage return is part of the text).
    text: String,
    end: End,
}

/// What is done with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Keep,
    Remove,
    Add,
}

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    LineBreak,
    /// With the file (`\ No newline at end of file`).
    File,
}
