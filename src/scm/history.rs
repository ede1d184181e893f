//! What new commits change, entry by entry.

use super::entry::EntryChange;
use super::error::ScmError;
use super::git::{GitDir, revisions, unexpected};
use crate::id::ObjectId;

/// A commit and what it changes against its first parent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) id: ObjectId,
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
    pub(super) subject: String,
    pub(super) changes: Vec<EntryChange>,
}

/// The commits that `tip` reaches and `known` do not, newest first.
pub(super) async fn new_commits(
    git: &GitDir,
    tip: &ObjectId,
    known: &[ObjectId],
) -> Result<Vec<Commit>, ScmError> {
    let command = git
        .command()
        .args([
            "log",
            "--stdin",
            "--topo-order",
            "-z",
            "--raw",
            "-r",
            "-t",
            "--no-abbrev",
            "--root",
        ])
        .args([
            "--no-renames",
            "--diff-merges=first-parent",
            "--no-notes",
            "--no-mailmap",
            "--no-show-signature",
        ])
        .args(["--ignore-submodules=none", "--format=tformat:commit %H %T %P%n%s"])
        .stdin(revisions(tip.as_str(), known));
    let printed = git.run(&command).await?;
    parse_log(&printed).ok_or_else(|| unexpected("a log", &printed))
}

/// What changed between two commits, without directories.
pub(super) async fn changes_between(
    git: &GitDir,
    from: &ObjectId,
    to: &ObjectId,
) -> Result<Vec<EntryChange>, ScmError> {
    let command = git
        .command()
        .args([
            "diff-tree",
            "-z",
            "--raw",
            "-r",
            "--no-abbrev",
            "--no-renames",
            "--ignore-submodules=none",
        ])
        .args([from.as_str(), to.as_str(), "--"]);
    let printed = git.run(&command).await?;
    let mut records = printed.split(|byte| *byte == 0);
    let mut changes = Vec::new();
    while let Some(record) = records.next().filter(|record| !record.is_empty()) {
        let path = records.next().unwrap_or_default();
        changes.push(EntryChange::parse(record, path).ok_or_else(|| unexpected("a diff", &printed))?);
    }
    Ok(changes)
}

fn parse_log(printed: &[u8]) -> Option<Vec<Commit>> {
    let mut commits: Vec<Commit> = Vec::new();
    let mut records = printed.split(|byte| *byte == 0);
    while let Some(record) = records.next() {
        // A commit's first change stands on a line of its own.
        let record = record.strip_prefix(b"\n").unwrap_or(record);
        if record.starts_with(b":") {
            let change = EntryChange::parse(record, records.next()?)?;
            commits.last_mut()?.changes.push(change);
        } else if !record.is_empty() {
            commits.push(parse_commit(record)?);
        }
    }
    Some(commits)
}

fn parse_commit(record: &[u8]) -> Option<Commit> {
    let text = String::from_utf8_lossy(record.strip_prefix(b"commit ")?);
    let (ids, subject) = text.split_once('\n')?;
    let mut ids = ids.split_whitespace().map(|id| ObjectId::parse(id).ok());
    Some(Commit {
        id: ids.next()??,
        tree: ids.next()??,
        parents: ids.collect::<Option<_>>()?,
        subject: subject.to_owned(),
        changes: Vec::new(),
    })
}
