//! What a clone holds now, committed or not, and how some of it is committed.
//!
//! After one `git status` the cost depends on what changed, not on the size of the repository: changed files are
//! hashed through a small index of their own, and `fast-import` edits the tree of `HEAD`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::clone::PrivateClone;
use super::entry::{Entry, EntryChange, parse_id, parse_mode};
use super::error::ScmError;
use super::git::{one_id, unexpected};
use super::import::{Date, Import, NewCommit, Target, read_ids};
use super::path::RepoPath;
use super::status::{Difference, Head, OnDisk, Status};
use crate::id::ObjectId;

/// The ref, in the clone, of the commit that holds uncommitted work.
pub(super) const WORK_REF: &str = "refs/ralph/work";
/// Who uncommitted work is by, and when: always the same, so that the same work has the same id.
const WORK_COMMITTER: &str = "ralph <ralph@localhost>";
/// The year 2100. Git walks history by date: a commit older than its parents would make it walk all of it.
const WORK_DATE: Date = Date::At(4_102_444_800);

/// What a clone holds at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The commit that is checked out.
    pub tip: ObjectId,
    /// What `HEAD` points at; an agent may have left the run's branch.
    pub head: Head,
    /// The tree of the working directory: committed, uncommitted and untracked files, without ignored ones and
    /// without the run's own state.
    pub tree: ObjectId,
    /// How it differs from the tip.
    pub dirty: Vec<DirtyPath>,
    /// The commit in the clone that holds the tree, where it is not the tip's.
    pub(super) work: Option<ObjectId>,
}

/// A path in the working directory that differs from the tip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyPath {
    /// Which one.
    pub path: RepoPath,
    /// In what way.
    pub change: Change,
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// Its content or its mode is another.
    Modified,
    /// It is gone.
    Deleted,
    /// It is a repository of its own, which is not part of the tree.
    Repository,
}

impl PrivateClone<'_> {
    /// Takes stock of the working directory.
    pub async fn snapshot(&self) -> Result<Snapshot, ScmError> {
        let status = self.status(&[]).await?;
        let edits = self.edits(&status.differences).await?;
        let (tree, work) = if edits.is_empty() {
            let tree = self
                .git(&["rev-parse", &format!("{}^{{tree}}", status.tip)])
                .await?;
            (one_id(&tree)?, None)
        } else {
            let commit = NewCommit {
                committer: WORK_COMMITTER,
                date: WORK_DATE,
                message: "Uncommitted work\n",
                from: Some(&status.tip),
                merge: None,
            };
            let (work, tree) = self.import(Target::Lasting(WORK_REF), &commit, &edits).await?;
            (tree, Some(work))
        };
        Ok(Snapshot {
            dirty: dirty(&status.differences, &edits),
            tip: status.tip,
            head: status.head,
            tree,
            work,
        })
    }

    /// Commits these paths (everything that changed when there are none); `None` when nothing changed.
    ///
    /// Other changes stay as they are, staged ones too. No hook runs.
    pub async fn commit(&self, message: &str, paths: &[String]) -> Result<Option<ObjectId>, ScmError> {
        let status = self.status(paths).await?;
        let edits = self.edits(&status.differences).await?;
        if edits.is_empty() {
            return Ok(None);
        }
        let commit = NewCommit {
            committer: &self.start.identity.to_string(),
            date: Date::Now,
            message: &format!("{}\n", message.trim_end()),
            from: Some(&status.tip),
            merge: None,
        };
        let (made, _tree) = self
            .import(Target::Scratch("refs/ralph/committing"), &commit, &edits)
            .await?;
        let (new, old) = (made.as_str(), status.tip.as_str());
        self.git(&["update-ref", "-m", "commit", "HEAD", new, old])
            .await?;
        self.put_into_index(&edits).await?;
        Ok(Some(made))
    }

    async fn status(&self, paths: &[String]) -> Result<Status, ScmError> {
        let git = self.inside();
        let command = git
            .command()
            .args(Status::ARGS)
            .arg("--")
            .args(paths.iter().cloned());
        Status::parse(&git.run(&command).await?)
    }

    /// How the tip's tree has to be edited to be what is on disk: deletions first, so that a file can become a
    /// directory.
    async fn edits(
        &self,
        differences: &BTreeMap<RepoPath, Difference>,
    ) -> Result<Vec<EntryChange>, ScmError> {
        let mut on_disk = self.hash_files(differences).await?;
        let mut edits: Vec<EntryChange> = differences
            .iter()
            .filter(|(_, difference)| difference.on_disk != OnDisk::Repository)
            .map(|(path, difference)| EntryChange {
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
        differences: &BTreeMap<RepoPath, Difference>,
    ) -> Result<HashMap<RepoPath, Entry>, ScmError> {
        let (mut known, mut present) = (Vec::new(), Vec::new());
        for (path, difference) in differences
            .iter()
            .filter(|(_, found)| found.on_disk == OnDisk::File)
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
        self.sandbox().files().remove(&index).await?;
        // What is known of a file decides how its line ends are converted.
        if !known.is_empty() {
            self.with_index(&index, &["update-index", "-z", "--index-info"], known)
                .await?;
        }
        let add = ["update-index", "-z", "--add", "--remove", "--stdin"];
        self.with_index(&index, &add, present).await?;
        let printed = self
            .with_index(&index, &["ls-files", "--stage", "-z"], Vec::new())
            .await?;
        parse_stage(&printed).ok_or_else(|| unexpected("an index", &printed))
    }

    async fn with_index(&self, index: &Path, args: &[&str], stdin: Vec<u8>) -> Result<Vec<u8>, ScmError> {
        let git = self.inside();
        let command = git
            .command()
            .args(["-c", "core.untrackedCache=false"])
            .args(args.iter().copied())
            .env("GIT_INDEX_FILE", index.display().to_string())
            .stdin(stdin);
        git.run(&command).await
    }

    async fn import(
        &self,
        target: Target<'_>,
        commit: &NewCommit<'_>,
        edits: &[EntryChange],
    ) -> Result<(ObjectId, ObjectId), ScmError> {
        let mut import = Import::new(target, commit);
        for edit in edits {
            match &edit.after {
                Some(entry) => import.put(&edit.path, entry.mode, &entry.id),
                None => import.remove(&edit.path),
            }
        }
        let git = self.inside();
        read_ids(&git.run(&import.finish(git.command(), self.start.format)).await?)
    }

    async fn put_into_index(&self, edits: &[EntryChange]) -> Result<(), ScmError> {
        let zero = self.start.format.zero();
        let lines: Vec<u8> = edits
            .iter()
            .flat_map(|edit| match &edit.after {
                Some(entry) => index_line(entry, &edit.path),
                None => [format!("0 {zero}\t").as_bytes(), edit.path.as_bytes(), b"\0"].concat(),
            })
            .collect();
        let git = self.inside();
        let args = ["update-index", "-z", "--add", "--replace", "--index-info"];
        git.run(&git.command().args(args).stdin(lines)).await?;
        Ok(())
    }
}

fn dirty(differences: &BTreeMap<RepoPath, Difference>, edits: &[EntryChange]) -> Vec<DirtyPath> {
    let edited = edits.iter().map(|edit| DirtyPath {
        path: edit.path.clone(),
        change: match (&edit.before, &edit.after) {
            (None, _) => Change::Added,
            (Some(_), Some(_)) => Change::Modified,
            (Some(_), None) => Change::Deleted,
        },
    });
    let repositories = differences
        .iter()
        .filter(|(_, difference)| difference.on_disk == OnDisk::Repository)
        .map(|(path, _)| DirtyPath {
            path: path.clone(),
            change: Change::Repository,
        });
    let mut dirty: Vec<DirtyPath> = edited.chain(repositories).collect();
    dirty.sort_by(|a, b| a.path.cmp(&b.path));
    dirty
}

fn index_line(entry: &Entry, path: &RepoPath) -> Vec<u8> {
    let start = format!("{:06o} {} 0\t", entry.mode, entry.id);
    [start.as_bytes(), path.as_bytes(), b"\0"].concat()
}

fn parse_stage(printed: &[u8]) -> Option<HashMap<RepoPath, Entry>> {
    let records = printed
        .split(|byte| *byte == 0)
        .filter(|record| !record.is_empty());
    records
        .map(|record| {
            let tab = record.iter().position(|byte| *byte == b'\t')?;
            let mut fields = record[..tab].split(|byte| *byte == b' ');
            let mode = parse_mode(fields.next()?)?;
            let id = parse_id(fields.next()?)?;
            Some((RepoPath::new(&record[tab + 1..]), Entry { mode, id }))
        })
        .collect()
}
