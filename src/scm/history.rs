//! The changes of new commits.

use super::entry::TreeChange;
use super::error::ScmError;
use super::git::{GitDir, revisions, unexpected};
use crate::id::ObjectId;

/// A commit and its changes against its first parent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HistoryCommit {
    pub(super) id: ObjectId,
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
    pub(super) changes: Vec<TreeChange>,
}

/// The commits that `tip` reaches and `known` does not, newest first.
pub(super) async fn new_commits(
    git: &GitDir,
    tip: &ObjectId,
    known: &[ObjectId],
) -> Result<Vec<HistoryCommit>, ScmError> {
    let command = git
        .command("log --stdin --topo-order -z --raw -r -t --no-abbrev --root --no-renames")
        .args(["--diff-merges=first-parent", "--ignore-submodules=none"])
        .args(["--no-notes", "--no-mailmap", "--no-show-signature"])
        .arg("--format=tformat:commit %H %T %P")
        .stdin(revisions(tip.as_str(), known));
    let printed = git.run(&command).await?;
    parse_log(&printed).ok_or_else(|| unexpected("a log", &printed))
}

/// The changes between two commits, without directories.
pub(super) async fn changes_between(
    git: &GitDir,
    from: &ObjectId,
    to: &ObjectId,
) -> Result<Vec<TreeChange>, ScmError> {
    let command = git
        .command("diff-tree -z --raw -r --no-abbrev --no-renames --ignore-submodules=none")
        .args([from.as_str(), to.as_str(), "--"]);
    let printed = git.run(&command).await?;
    let mut records = printed.split(|byte| *byte == 0);
    let mut changes = Vec::new();
    while let Some(record) = records.next().filter(|record| !record.is_empty()) {
        let path = records.next().unwrap_or_default();
        changes.push(TreeChange::parse(record, path).ok_or_else(|| unexpected("a diff", &printed))?);
    }
    Ok(changes)
}

pub(super) fn parse_log(printed: &[u8]) -> Option<Vec<HistoryCommit>> {
    let mut commits: Vec<HistoryCommit> = Vec::new();
    let mut records = printed.split(|byte| *byte == 0);
    while let Some(record) = records.next() {
        // The first change of a commit begins with a line break.
        let record = record.strip_prefix(b"\n").unwrap_or(record);
        if record.starts_with(b":") {
            let change = TreeChange::parse(record, records.next()?)?;
            commits.last_mut()?.changes.push(change);
        } else if !record.is_empty() {
            commits.push(parse_commit(record)?);
        }
    }
    Some(commits)
}

fn parse_commit(record: &[u8]) -> Option<HistoryCommit> {
    let text = String::from_utf8_lossy(record.strip_prefix(b"commit ")?);
    let mut ids = text.split_whitespace().map(|id| ObjectId::parse(id).ok());
    Some(HistoryCommit {
        id: ids.next()??,
        tree: ids.next()??,
        parents: ids.collect::<Option<_>>()?,
        changes: Vec::new(),
    })
}
