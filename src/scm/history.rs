//! What new commits change, entry by entry.

use super::error::ScmError;
use super::git::{GitDir, unexpected};
use super::path::RepoPath;
use super::status::{Blob, parse_id, parse_mode};
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

/// An entry that changed: a file, a link, or a directory on the way to one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EntryChange {
    pub(super) path: RepoPath,
    pub(super) before: Option<Blob>,
    pub(super) after: Option<Blob>,
}

/// The commits that `tip` reaches and `known` do not, newest first.
pub(super) async fn new_commits(
    git: &GitDir,
    tip: &ObjectId,
    known: &[ObjectId],
) -> Result<Vec<Commit>, ScmError> {
    let revisions: String = std::iter::once(format!("{tip}\n"))
        .chain(known.iter().map(|id| format!("^{id}\n")))
        .collect();
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
        .stdin(revisions);
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
        changes.push(parse_change(record, path).ok_or_else(|| unexpected("a diff", &printed))?);
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
            let change = parse_change(record, records.next()?)?;
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

fn parse_change(record: &[u8], path: &[u8]) -> Option<EntryChange> {
    let fields: Vec<&[u8]> = record.strip_prefix(b":")?.split(|byte| *byte == b' ').collect();
    let [mode_before, mode_after, before, after, _letter] = fields.as_slice() else {
        return None;
    };
    let blob = |mode: &[u8], id: &[u8]| match parse_mode(mode)? {
        0 => Some(None),
        mode => Some(Some(Blob {
            mode,
            id: parse_id(id)?,
        })),
    };
    Some(EntryChange {
        path: RepoPath::new(path),
        before: blob(mode_before, before)?,
        after: blob(mode_after, after)?,
    })
}
