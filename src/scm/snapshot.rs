//! Snapshots of a clone with its uncommitted work, and commits of parts of it.
//!
//! After one `git status` the cost depends on what changed, not on the size of the repository: changed files are hashed
//! through a small separate index, and `fast-import` edits the tree of `HEAD`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::clone::PrivateClone;
use super::entry::{TREE, TreeChange, TreeEntry, parse_id, parse_mode};
use super::error::ScmError;
use super::git::{one_id, records, unexpected};
use super::import::{CommitSpec, FAST_IMPORT, FastImport, ImportRef, read_ids};
use super::path::RepoPath;
use super::status::{DiskState, GitStatus, PathStatus};
use crate::id::ObjectId;

/// The ref in the clone of the commit with the uncommitted work.
pub(super) const WORK_REF: &str = "refs/ralph/work";
/// The committer of uncommitted work. Fixed, like the date, so that the same work has the same id.
const WORK_COMMITTER: &str = "ralph <ralph@localhost>";
/// The year 2100. Git walks history by date, and would walk all of it for a commit older than its parents.
const WORK_DATE: i64 = 4_102_444_800;

/// The content of a clone at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The commit that is checked out.
    pub tip: ObjectId,
    /// The branch that is checked out, which an agent may have changed. `None` if `HEAD` is detached.
    pub branch: Option<String>,
    /// The tree of the working directory: committed, uncommitted and untracked files, without ignored ones and
    /// without the run's own state.
    pub tree: ObjectId,
    /// The paths that differ from the tip.
    pub dirty: Vec<DirtyPath>,
    /// The commit with the tree, if it is not the tip.
    pub(super) work: Option<ObjectId>,
}

/// An uncommitted file that was left out of a snapshot because of its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeFile {
    /// The path.
    pub path: RepoPath,
    /// Its size.
    pub bytes: u64,
}

/// A path in the working directory that differs from the tip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyPath {
    /// The path.
    pub path: RepoPath,
    /// How it differs.
    pub change: PathChange,
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// It is new.
    Added,
    /// Its content or mode has changed.
    Modified,
    /// It was deleted.
    Deleted,
    /// It is a nested repository, which is not part of the tree.
    Repository,
}

impl PrivateClone<'_> {
    /// Takes a snapshot of the working directory.
    pub async fn snapshot(&self) -> Result<Snapshot, ScmError> {
        let status = self.status(&[]).await?;
        let edits = self.edits(&status.differences).await?;
        self.snapshot_of(status, &edits).await
    }

    /// Like [`PrivateClone::snapshot`], but leaves out the largest uncommitted files until the others have at most `limit`
    /// bytes. Returns the files that were left out, the largest first. They stay in the working directory.
    pub async fn snapshot_within(&self, limit: u64) -> Result<(Snapshot, Vec<LargeFile>), ScmError> {
        let status = self.status(&[]).await?;
        let mut edits = self.edits(&status.differences).await?;
        let mut files = self.sizes(&edits).await?;
        files.sort_by_key(|file| std::cmp::Reverse(file.bytes));
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let mut left_out = Vec::new();
        for file in files {
            if bytes <= limit {
                break;
            }
            bytes -= file.bytes;
            edits.retain(|edit| edit.path != file.path);
            left_out.push(file);
        }
        Ok((self.snapshot_of(status, &edits).await?, left_out))
    }

    /// The sizes of the files that edits put into the tree.
    async fn sizes(&self, edits: &[TreeChange]) -> Result<Vec<LargeFile>, ScmError> {
        let files: Vec<(&RepoPath, &ObjectId)> = edits
            .iter()
            .filter_map(|edit| Some((&edit.path, &edit.after.as_ref()?.id)))
            .collect();
        let ids: Vec<String> = files.iter().map(|(_, id)| id.to_string()).collect();
        let ids = ids.join("\n");
        let command = self.command("cat-file --batch-check=%(objectsize)").stdin(ids);
        let printed = self.run(&command).await?;
        let printed = String::from_utf8_lossy(&printed);
        let sizes: Result<Vec<u64>, _> = printed.lines().map(str::parse).collect();
        let sizes = sizes.map_err(|_| unexpected("sizes of objects", printed.as_bytes()))?;
        let pairs = files.into_iter().zip(sizes);
        Ok(pairs
            .map(|((path, _), bytes)| LargeFile {
                path: path.clone(),
                bytes,
            })
            .collect())
    }

    async fn snapshot_of(&self, status: GitStatus, edits: &[TreeChange]) -> Result<Snapshot, ScmError> {
        let (tree, work) = if edits.is_empty() {
            let tree = self
                .git(&["rev-parse", &format!("{}^{{tree}}", status.tip)])
                .await?;
            (one_id(&tree)?, None)
        } else {
            let commit = CommitSpec {
                committer: WORK_COMMITTER,
                date: Some(WORK_DATE),
                message: "Uncommitted work\n",
                from: Some(&status.tip),
                merge: None,
            };
            let (work, tree) = self.import(ImportRef::Keep(WORK_REF), &commit, edits).await?;
            (tree, Some(work))
        };
        Ok(Snapshot {
            dirty: dirty(&status.differences, edits),
            tip: status.tip,
            branch: status.branch,
            tree,
            work,
        })
    }

    /// Commits these paths, or all changes if `paths` is empty. Returns `None` if nothing changed.
    ///
    /// Other changes stay as they are, also staged ones. No hook runs.
    pub async fn commit(&self, message: &str, paths: &[String]) -> Result<Option<ObjectId>, ScmError> {
        let status = self.status(paths).await?;
        let edits = self.edits(&status.differences).await?;
        if edits.is_empty() {
            return Ok(None);
        }
        let commit = CommitSpec {
            committer: &self.start.identity.to_string(),
            date: None,
            message: &format!("{}\n", message.trim_end()),
            from: Some(&status.tip),
            merge: None,
        };
        let (made, _tree) = self
            .import(ImportRef::Discard("refs/ralph/committing"), &commit, &edits)
            .await?;
        let (new, old) = (made.as_str(), status.tip.as_str());
        self.git(&["update-ref", "-m", "commit", "HEAD", new, old])
            .await?;
        self.put_into_index(&edits).await?;
        Ok(Some(made))
    }

    /// Commits the uncommitted work of a snapshot on top of its tip, and returns the snapshot after that. What the snapshot
    /// leaves out stays uncommitted. No hook runs.
    pub async fn commit_snapshot(&self, snapshot: &Snapshot, message: &str) -> Result<Snapshot, ScmError> {
        let commit = CommitSpec {
            committer: &self.start.identity.to_string(),
            date: None,
            message,
            from: Some(&snapshot.tip),
            merge: None,
        };
        let mut import = FastImport::new(ImportRef::Discard("refs/ralph/committing"), &commit);
        // An empty path is the root.
        import.put(&RepoPath::new(""), TREE, &snapshot.tree);
        let command = import.finish(self.command(FAST_IMPORT), self.start.format);
        let (tip, tree) = read_ids(&self.run(&command).await?)?;
        let (new, old) = (tip.as_str(), snapshot.tip.as_str());
        self.git(&["update-ref", "-m", "commit", "HEAD", new, old])
            .await?;
        self.reset_index().await?;
        let mut dirty = snapshot.dirty.clone();
        dirty.retain(|path| path.change == PathChange::Repository);
        Ok(Snapshot {
            branch: snapshot.branch.clone(),
            tip,
            tree,
            dirty,
            work: None,
        })
    }

    async fn status(&self, paths: &[String]) -> Result<GitStatus, ScmError> {
        let command = self.command(GitStatus::ARGS).args(paths.iter().cloned());
        GitStatus::parse(&self.run(&command).await?)
    }

    /// The edits that turn the tip's tree into what is on disk. Deletions come first, so that a file can become a
    /// directory.
    async fn edits(&self, differences: &BTreeMap<RepoPath, PathStatus>) -> Result<Vec<TreeChange>, ScmError> {
        let mut on_disk = self.hash_files(differences).await?;
        let mut edits: Vec<TreeChange> = differences
            .iter()
            .filter(|(_, difference)| difference.on_disk != DiskState::Repository)
            .map(|(path, difference)| TreeChange {
                path: path.clone(),
                before: difference.head.clone(),
                after: on_disk.remove(path),
            })
            .filter(|edit| edit.before != edit.after)
            .collect();
        edits.sort_by_key(|edit| edit.after.is_some());
        Ok(edits)
    }

    /// Writes the files that are on disk into the clone's object store, as `git add` would.
    async fn hash_files(
        &self,
        differences: &BTreeMap<RepoPath, PathStatus>,
    ) -> Result<HashMap<RepoPath, TreeEntry>, ScmError> {
        let (mut known, mut present) = (Vec::new(), Vec::new());
        for (path, difference) in differences
            .iter()
            .filter(|(_, found)| found.on_disk == DiskState::File)
        {
            present.extend_from_slice(path.as_bytes());
            present.push(0);
            if let Some(entry) = &difference.index {
                known.extend(index_line(entry, path));
            }
        }
        if present.is_empty() {
            return Ok(HashMap::new());
        }
        let index = self.dir().join(".git/ralph-index");
        self.sandbox.files().remove(&index).await?;
        // The index entry of a file decides how its line ends are converted.
        if !known.is_empty() {
            self.with_index(&index, "update-index -z --index-info", known)
                .await?;
        }
        self.with_index(&index, "update-index -z --add --remove --stdin", present)
            .await?;
        let printed = self.with_index(&index, "ls-files --stage -z", Vec::new()).await?;
        parse_stage(&printed).ok_or_else(|| unexpected("an index", &printed))
    }

    async fn with_index(&self, index: &Path, args: &str, stdin: Vec<u8>) -> Result<Vec<u8>, ScmError> {
        let command = self
            .command(&format!("-c core.untrackedCache=false {args}"))
            .env("GIT_INDEX_FILE", index.display().to_string())
            .stdin(stdin);
        self.run(&command).await
    }

    async fn import(
        &self,
        import_ref: ImportRef<'_>,
        commit: &CommitSpec<'_>,
        edits: &[TreeChange],
    ) -> Result<(ObjectId, ObjectId), ScmError> {
        let mut import = FastImport::new(import_ref, commit);
        for edit in edits {
            match &edit.after {
                Some(entry) => import.put(&edit.path, entry.mode, &entry.id),
                None => import.remove(&edit.path),
            }
        }
        let command = import.finish(self.command(FAST_IMPORT), self.start.format);
        read_ids(&self.run(&command).await?)
    }

    async fn put_into_index(&self, edits: &[TreeChange]) -> Result<(), ScmError> {
        let zero = self.start.format.zero();
        let lines: Vec<u8> = edits
            .iter()
            .flat_map(|edit| match &edit.after {
                Some(entry) => index_line(entry, &edit.path),
                None => [format!("0 {zero}\t").as_bytes(), edit.path.as_bytes(), b"\0"].concat(),
            })
            .collect();
        let command = self
            .command("update-index -z --add --replace --index-info")
            .stdin(lines);
        self.run(&command).await?;
        Ok(())
    }
}

fn dirty(differences: &BTreeMap<RepoPath, PathStatus>, edits: &[TreeChange]) -> Vec<DirtyPath> {
    let edited = edits.iter().map(|edit| DirtyPath {
        path: edit.path.clone(),
        change: match (&edit.before, &edit.after) {
            (None, _) => PathChange::Added,
            (Some(_), Some(_)) => PathChange::Modified,
            (Some(_), None) => PathChange::Deleted,
        },
    });
    let repositories = differences
        .iter()
        .filter(|(_, difference)| difference.on_disk == DiskState::Repository)
        .map(|(path, _)| DirtyPath {
            path: path.clone(),
            change: PathChange::Repository,
        });
    let mut dirty: Vec<DirtyPath> = edited.chain(repositories).collect();
    dirty.sort_by(|a, b| a.path.cmp(&b.path));
    dirty
}

pub(super) fn index_line(entry: &TreeEntry, path: &RepoPath) -> Vec<u8> {
    let start = format!("{:06o} {} 0\t", entry.mode, entry.id);
    [start.as_bytes(), path.as_bytes(), b"\0"].concat()
}

/// Parses the output of `ls-files --stage -z`.
pub(super) fn parse_stage(printed: &[u8]) -> Option<HashMap<RepoPath, TreeEntry>> {
    records(printed)
        .map(|record| {
            let tab = record.iter().position(|byte| *byte == b'\t')?;
            let mut fields = record[..tab].split(|byte| *byte == b' ');
            let mode = parse_mode(fields.next()?)?;
            let id = parse_id(fields.next()?)?;
            Some((RepoPath::new(&record[tab + 1..]), TreeEntry { mode, id }))
        })
        .collect()
}
