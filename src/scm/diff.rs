//! The differences between two trees of a clone.

use std::collections::HashMap;

use super::clone::PrivateClone;
use super::entry::TreeChange;
use super::error::ScmError;
use super::git::{failure, unexpected};
use super::path::RepoPath;
use super::repository::Repository;
use crate::exec::{CapturedOutput, Command, Discard};
use crate::id::ObjectId;
use crate::text::counted;

/// How many bytes of a patch are kept: a quarter from its beginning, the rest from its end.
const PATCH_BYTES: usize = 1024 * 1024;
/// Options against what the configuration or the attributes of the clone could change.
const PLAIN: &str = "--no-renames --no-color --no-ext-diff --no-textconv";
/// Larger files count as binary.
const BIG_FILE: &str = "core.bigFileThreshold=8m";

/// The differences between two trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The patch, bounded in size: a line marks where it was cut. Invalid UTF-8 is replaced.
    pub patch: String,
    /// The changed files. A rename is a deletion and an addition.
    pub files: Vec<FileChange>,
}

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Its path.
    pub path: RepoPath,
    /// Its old content. `None` if it is new.
    pub before: Option<ObjectId>,
    /// Its new content. `None` if it was deleted.
    pub after: Option<ObjectId>,
    /// The changed lines. `None` for a binary file.
    pub lines: Option<LineCount>,
}

impl FileChange {
    /// `added`, `deleted` or `changed`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "added",
            (_, None) => "deleted",
            (Some(_), Some(_)) => "changed",
        }
    }
}

/// A number of changed lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCount {
    /// Added lines.
    pub added: u64,
    /// Removed lines.
    pub removed: u64,
}

impl Diff {
    /// Parses `--raw --numstat -z`, with or without `--patch`: changed entries, counts, an empty record, the patch.
    pub(super) fn parse(printed: &[u8]) -> Option<Self> {
        let mut diff = Self::default();
        let mut at: HashMap<RepoPath, usize> = HashMap::new();
        let mut records = Records(printed);
        while let Some(record) = records.next().filter(|record| !record.is_empty()) {
            if record.starts_with(b":") {
                let change = TreeChange::parse(record, records.next()?)?;
                at.insert(change.path.clone(), diff.files.len());
                diff.files.push(FileChange {
                    path: change.path,
                    before: change.before.map(|entry| entry.id),
                    after: change.after.map(|entry| entry.id),
                    lines: None,
                });
            } else {
                let mut fields = record.splitn(3, |byte| *byte == b'\t');
                let (added, removed) = (number(fields.next()?), number(fields.next()?));
                let index = *at.get(&RepoPath::new(fields.next()?))?;
                diff.files[index].lines = added
                    .zip(removed)
                    .map(|(added, removed)| LineCount { added, removed });
            }
        }
        diff.patch = String::from_utf8_lossy(records.0).into_owned();
        Some(diff)
    }

    /// The changed lines of all files.
    #[must_use]
    pub fn lines(&self) -> LineCount {
        let known = self.files.iter().filter_map(|file| file.lines);
        known.fold(LineCount::default(), |sum, lines| LineCount {
            added: sum.added.saturating_add(lines.added),
            removed: sum.removed.saturating_add(lines.removed),
        })
    }

    /// `3 files changed, 10 lines added, 2 removed`.
    #[must_use]
    pub fn summary(&self) -> String {
        let LineCount { added, removed } = self.lines();
        let (files, added) = (counted(self.files.len(), "file"), counted(added, "line"));
        format!("{files} changed, {added} added, {removed} removed")
    }
}

/// The files that differ between two commits of the user's repository.
pub async fn changed_files(
    repository: &Repository,
    from: &ObjectId,
    to: &ObjectId,
) -> Result<Vec<FileChange>, ScmError> {
    let git = &repository.git;
    let compare = format!("-c {BIG_FILE} diff-tree -r --full-index --raw --numstat -z {PLAIN}");
    let command = git.command(&compare).args([from.as_str(), to.as_str(), "--"]);
    let printed = git.run(&command).await?;
    let diff = Diff::parse(&printed).ok_or_else(|| unexpected("a diff", &printed))?;
    Ok(diff.files)
}

impl PrivateClone<'_> {
    /// Compares two trees or commits of the clone.
    pub async fn diff(&self, from: &ObjectId, to: &ObjectId) -> Result<Diff, ScmError> {
        if from == to {
            return Ok(Diff::default());
        }
        // Git reads the index even to compare two trees. This one does not exist.
        let no_index = self.dir().join(".git/ralph-no-index").display().to_string();
        let compare = |format: &str| {
            self.command(&format!(
                "-c {BIG_FILE} diff-tree -r --full-index {format} {PLAIN}"
            ))
            .env("GIT_INDEX_FILE", no_index.clone())
            .args([from.as_str(), to.as_str(), "--"])
        };
        let all = self.bounded(compare("--raw --numstat --patch -z")).await?;
        if let Some(printed) = all.complete() {
            return Diff::parse(&printed).ok_or_else(|| unexpected("a diff", &printed));
        }
        // The patch is too long, and the dropped part may include the list before it.
        let listed = self.run(&compare("--raw --numstat -z")).await?;
        let list = Diff::parse(&listed).ok_or_else(|| unexpected("a diff", &listed))?;
        let patch = self.bounded(compare("--patch")).await?.text();
        Ok(Diff { patch, ..list })
    }

    async fn bounded(&self, command: Command) -> Result<CapturedOutput, ScmError> {
        let command = command.keep(PATCH_BYTES);
        let exit = self.sandbox.exec(&command, &mut Discard).await?;
        if exit.success() {
            Ok(exit.stdout)
        } else {
            Err(failure(&command, &exit))
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Iterates over NUL-terminated records. `self.0` is the rest.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let record = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(record)
    }
}
