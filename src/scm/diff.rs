//! What changed between two trees of a clone.

use std::collections::HashMap;

use super::clone::PrivateClone;
use super::entry::EntryChange;
use super::error::ScmError;
use super::git::{output, unexpected};
use super::path::RepoPath;
use crate::exec::Discard;
use crate::id::ObjectId;

/// How much of a patch is kept: a quarter from its beginning, the rest from its end.
const PATCH_BYTES: usize = 1024 * 1024;
/// Files over this size count as binary.
const BIG_FILE: &str = "core.bigFileThreshold=8m";

/// What changed between two trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The patch. Bounded: where it was cut, a line says so. Bytes that are no UTF-8 are replaced.
    pub patch: String,
    /// The files that changed. A rename is a deletion and an addition.
    pub files: Vec<FileChange>,
}

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Which one.
    pub path: RepoPath,
    /// What it was; `None` when it is new.
    pub before: Option<ObjectId>,
    /// What it is; `None` when it is gone.
    pub after: Option<ObjectId>,
    /// How many lines; `None` for binary files.
    pub lines: Option<Lines>,
}

impl From<EntryChange> for FileChange {
    fn from(change: EntryChange) -> Self {
        Self {
            path: change.path,
            before: change.before.map(|entry| entry.id),
            after: change.after.map(|entry| entry.id),
            lines: None,
        }
    }
}

/// How many lines changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// New ones.
    pub added: u64,
    /// Lost ones.
    pub removed: u64,
}

impl Diff {
    /// The lines of all files together.
    #[must_use]
    pub fn lines(&self) -> Lines {
        let known = self.files.iter().filter_map(|file| file.lines);
        known.fold(Lines::default(), |sum, lines| Lines {
            added: sum.added + lines.added,
            removed: sum.removed + lines.removed,
        })
    }

    /// `3 files changed, 10 lines added, 2 removed`.
    #[must_use]
    pub fn summary(&self) -> String {
        let Lines { added, removed } = self.lines();
        let (files, plural) = (self.files.len(), if self.files.len() == 1 { "" } else { "s" });
        format!("{files} file{plural} changed, {added} lines added, {removed} removed")
    }
}

impl PrivateClone<'_> {
    /// What changed between two trees (or commits) of the clone.
    pub async fn diff(&self, from: &ObjectId, to: &ObjectId) -> Result<Diff, ScmError> {
        if from == to {
            return Ok(Diff::default());
        }
        let git = self.inside();
        let compare = |format: &[&str]| {
            git.command()
                .args(["-c", BIG_FILE, "diff-tree", "-r", "--no-renames", "--no-color"])
                .args(["--no-ext-diff", "--no-textconv", "--full-index"])
                .args(format.iter().copied())
                .args([from.as_str(), to.as_str(), "--"])
        };
        let listed = git.run(&compare(&["--raw", "--numstat", "-z"])).await?;
        let files = parse(&listed).ok_or_else(|| unexpected("a diff", &listed))?;
        let patch = compare(&["--patch"]).keep(PATCH_BYTES);
        let exit = self.sandbox().exec(&patch, &mut Discard).await?;
        if !exit.success() {
            output(&patch, &exit)?;
        }
        Ok(Diff {
            patch: exit.stdout.text(),
            files,
        })
    }
}

/// Reads `--raw --numstat -z`: all raw records, then all counts.
fn parse(printed: &[u8]) -> Option<Vec<FileChange>> {
    let mut files: Vec<FileChange> = Vec::new();
    let mut at: HashMap<RepoPath, usize> = HashMap::new();
    let mut records = printed
        .split(|byte| *byte == 0)
        .filter(|record| !record.is_empty());
    while let Some(record) = records.next() {
        if record.starts_with(b":") {
            let change = EntryChange::parse(record, records.next()?)?;
            at.insert(change.path.clone(), files.len());
            files.push(change.into());
        } else {
            let mut fields = record.splitn(3, |byte| *byte == b'\t');
            let (added, removed) = (fields.next()?, fields.next()?);
            let index = *at.get(&RepoPath::new(fields.next()?))?;
            files[index].lines = number(added)
                .zip(number(removed))
                .map(|(added, removed)| Lines { added, removed });
        }
    }
    Some(files)
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
