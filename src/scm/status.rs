//! Parses `git status --porcelain=v2 -z`.

use std::collections::BTreeMap;

use super::entry::{GITLINK, TreeEntry, parse_id, parse_mode};
use super::error::ScmError;
use super::git::{records, unexpected};
use super::path::RepoPath;
use crate::id::ObjectId;

/// What is at a path in the working directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskState {
    File,
    Nothing,
    /// A nested repository: a submodule, or one that the agent created. Git and ralph ignore its content.
    Repository,
}

/// A path that differs from `HEAD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathStatus {
    pub(super) head: Option<TreeEntry>,
    pub(super) index: Option<TreeEntry>,
    pub(super) on_disk: DiskState,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct GitStatus {
    pub(super) tip: ObjectId,
    /// The branch that is checked out, without `refs/heads/`. `None` if `HEAD` is detached.
    pub(super) branch: Option<String>,
    /// The paths that differ from `HEAD`, without the run files.
    pub(super) differences: BTreeMap<RepoPath, PathStatus>,
}

impl GitStatus {
    /// The arguments whose output [`GitStatus::parse`] reads; paths follow. A rename is a deletion and an addition.
    /// Not `--untracked-files=all`, because git caches untracked files only for the configured mode.
    pub(super) const ARGS: &str = "-c status.showUntrackedFiles=all status --porcelain=v2 --branch -z --no-renames \
         --ignore-submodules=all --";

    pub(super) fn parse(printed: &[u8]) -> Result<Self, ScmError> {
        let (mut tip, mut branch) = (None, None);
        let mut differences = BTreeMap::new();
        for record in records(printed) {
            if let Some(id) = record.strip_prefix(b"# branch.oid ") {
                tip = parse_id(id);
                if tip.is_none() && id == b"(initial)" {
                    return Err(ScmError::NoCommit);
                }
            } else if let Some(name) = record.strip_prefix(b"# branch.head ") {
                if name != b"(detached)" {
                    branch = Some(String::from_utf8_lossy(name).into_owned());
                }
            } else if !record.starts_with(b"#") {
                let (path, difference) =
                    parse_record(record).ok_or_else(|| unexpected("a status", record))?;
                if !path.is_private() {
                    add(&mut differences, path, difference);
                }
            }
        }
        let tip = tip.ok_or_else(|| unexpected("a status", printed))?;
        Ok(Self {
            tip,
            branch,
            differences,
        })
    }
}

/// Git lists a file whose deletion is staged but which still exists twice: as deleted and as untracked.
fn add(differences: &mut BTreeMap<RepoPath, PathStatus>, path: RepoPath, new: PathStatus) {
    differences
        .entry(path)
        .and_modify(|old| {
            if new.on_disk == DiskState::File {
                old.on_disk = DiskState::File;
            }
            old.head = old.head.take().or_else(|| new.head.clone());
        })
        .or_insert(new);
}

fn parse_record(record: &[u8]) -> Option<(RepoPath, PathStatus)> {
    match record.first()? {
        b'?' => Some(untracked(record.get(2..)?)),
        b'1' => {
            let [_, _, _, head_mode, index_mode, disk_mode, head_id, index_id, path] = fields(record)?;
            let difference = PathStatus {
                head: TreeEntry::parse(head_mode, head_id)?,
                index: TreeEntry::parse(index_mode, index_id)?,
                on_disk: on_disk(&[head_mode, index_mode, disk_mode])?,
            };
            Some((RepoPath::new(path), difference))
        }
        b'u' => {
            let [_, _, _, _, our_mode, _, disk_mode, _, our_id, _, path] = fields(record)?;
            let difference = PathStatus {
                head: TreeEntry::parse(our_mode, our_id)?,
                index: None,
                on_disk: on_disk(&[our_mode, disk_mode])?,
            };
            Some((RepoPath::new(path), difference))
        }
        _ => None,
    }
}

fn untracked(path: &[u8]) -> (RepoPath, PathStatus) {
    let (path, on_disk) = match path.strip_suffix(b"/") {
        Some(dir) => (dir, DiskState::Repository),
        None => (path, DiskState::File),
    };
    let difference = PathStatus {
        head: None,
        index: None,
        on_disk,
    };
    (RepoPath::new(path), difference)
}

/// The space-separated fields. The last one is a path and may contain spaces.
fn fields<const N: usize>(record: &[u8]) -> Option<[&[u8]; N]> {
    let fields: Vec<&[u8]> = record.splitn(N, |byte| *byte == b' ').collect();
    fields.try_into().ok()
}

/// Derived from the modes in `HEAD`, in the index and, last, on disk.
fn on_disk(modes: &[&[u8]]) -> Option<DiskState> {
    let modes: Vec<u32> = modes.iter().map(|mode| parse_mode(mode)).collect::<Option<_>>()?;
    Some(match modes.last()? {
        _ if modes.contains(&GITLINK) => DiskState::Repository,
        0 => DiskState::Nothing,
        _ => DiskState::File,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const Z: &str = "0000000000000000000000000000000000000000";

    fn parse(records: &[String]) -> GitStatus {
        let printed = format!(
            "# branch.oid {A}\0# branch.head ralph/t/x\0{}\0",
            records.join("\0")
        );
        GitStatus::parse(printed.as_bytes()).unwrap()
    }

    #[test]
    fn each_kind_of_record_is_read() {
        let status = parse(&[
            format!("1 .M N... 100644 100644 100755 {A} {A} with space"),
            format!("1 D. N... 100644 000000 000000 {A} {Z} gone"),
            format!("1 AM S..U 000000 160000 160000 {Z} {A} module"),
            format!("u UU N... 100644 100644 100644 100644 {A} {A} {A} torn"),
            "? new\nfile".to_owned(),
            "? nested/".to_owned(),
            "? .ralph/notes.md".to_owned(),
        ]);
        assert_eq!(status.branch.as_deref(), Some("ralph/t/x"));
        let found: Vec<(String, DiskState)> = status
            .differences
            .iter()
            .map(|(path, difference)| (path.to_string(), difference.on_disk))
            .collect();
        let expected = [
            ("gone", DiskState::Nothing),
            ("module", DiskState::Repository),
            ("nested", DiskState::Repository),
            ("new\\nfile", DiskState::File),
            ("torn", DiskState::File),
            ("with space", DiskState::File),
        ];
        assert_eq!(found, expected.map(|(path, kind)| (path.to_owned(), kind)));
    }

    #[test]
    fn a_file_deleted_in_the_index_and_present_on_disk_is_there() {
        let status = parse(&[
            format!("1 D. N... 100644 000000 000000 {A} {Z} kept"),
            "? kept".to_owned(),
        ]);
        let kept = &status.differences[&"kept".into()];
        assert_eq!(kept.on_disk, DiskState::File);
        assert!(kept.head.is_some());
    }

    #[test]
    fn a_clone_without_a_commit_and_garbage_are_errors() {
        let unborn = GitStatus::parse(b"# branch.oid (initial)\0# branch.head x\0");
        assert!(matches!(unborn, Err(ScmError::NoCommit)));
        for bad in ["", "1 .M", "9 x"] {
            let printed = format!("# branch.oid {A}\0{bad}\0");
            let parsed = GitStatus::parse(printed.as_bytes());
            assert_eq!(parsed.is_ok(), bad.is_empty(), "{bad:?}");
        }
    }
}
