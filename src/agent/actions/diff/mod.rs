//! Unified diffs of one file.

mod apply;
mod parse;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::path::RelPath;

pub use apply::PatchedFile;

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

/// Why a diff cannot be parsed or applied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PatchError(String);

impl PatchError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl Patch {
    /// The value of `format` in the JSON schema.
    pub(super) const FORMAT: &'static str = "unified-diff-of-one-file";

    /// Parses a diff. The file names and the numbers between `@@` and `@@` are optional.
    pub fn parse(text: &str) -> Result<Self, PatchError> {
        parse::parse(text)
    }

    /// Checks that every file name in the diff is this path, with or without `a/` and `b/`.
    pub fn check_names(&self, path: &RelPath) -> Result<(), PatchError> {
        let is_path = |name: &str| RelPath::parse(name).is_ok_and(|name| name == *path);
        let agrees = |name: &&String| {
            let below = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/"));
            is_path(name) || below.is_some_and(is_path)
        };
        match self.names.iter().find(|name| !agrees(name)) {
            None => Ok(()),
            Some(named) => Err(PatchError::new(format!(
                "the diff names `{named}`, but the action's path is `{path}`"
            ))),
        }
    }

    /// Applies the diff to a file's content. `None` is a file that does not exist.
    pub fn apply(&self, original: Option<&[u8]>) -> Result<PatchedFile, PatchError> {
        apply::apply(self, original)
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
    type Error = PatchError;

    fn try_from(text: String) -> Result<Self, PatchError> {
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
    /// The text with its line feed, which only the last line of a file can lack (`\ No newline at end of file`).
    text: String,
}

/// What happens to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineOp {
    Keep,
    Remove,
    Add,
}
