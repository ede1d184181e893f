//! A temporary repository in which a hand-back is checked. It can read the user's objects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::entry::TreeChange;
use super::error::{HandBackRefusal, ScmError};
use super::git::{GitDir, message, output};
use super::history::{HistoryCommit, new_commits};
use super::objects::{self, tree_names};
use super::path::{RepoPath, collision, name_problem};
use super::repository::Repository;
use super::scratch::write_layout;
use crate::exec::ExitStatus;
use crate::id::ObjectId;

/// What git says if a disk is full.
const FULL_DISK: [&str; 2] = ["No space left on device", "Out of diskspace"];

/// A bare repository in a temporary directory that borrows the user's objects.
pub(super) struct Quarantine {
    pub(super) git: GitDir,
    id_bytes: usize,
    dir: TempDir,
}

impl Quarantine {
    /// Creates it in a new directory below `parent`.
    pub(super) fn create(repository: &Repository, parent: &Path) -> Result<Self, ScmError> {
        let failed = ScmError::file("create a quarantine repository in", parent);
        std::fs::create_dir_all(parent).map_err(failed)?;
        let dir = tempfile::Builder::new()
            .prefix("quarantine-")
            .tempdir_in(parent)
            .map_err(failed)?;
        let format = repository.object_format();
        let fill = || {
            repository.borrow_objects(&dir.path().join("objects"))?;
            write_layout(dir.path(), format)
        };
        fill().map_err(failed)?;
        Ok(Self {
            git: repository.git.with_path(dir.path().to_owned()),
            id_bytes: format.id_bytes(),
            dir,
        })
    }

    /// The file that the bundle is copied to.
    pub(super) fn bundle_file(&self) -> PathBuf {
        self.dir.path().join("bundle")
    }

    /// The first of these commits that is neither here nor in the user's repository.
    pub(super) async fn first_missing(&self, commits: &[&ObjectId]) -> Result<Option<ObjectId>, ScmError> {
        if commits.is_empty() {
            return Ok(None);
        }
        let names: Vec<&str> = commits.iter().map(|id| id.as_str()).collect();
        let command = self
            .git
            .command("cat-file --batch-check=%(objecttype)")
            .stdin(names.join("\n") + "\n");
        let printed = self.git.run(&command).await?;
        let lines = printed.split(|byte| *byte == b'\n');
        let missing = commits.iter().zip(lines).find(|(_, line)| *line != b"commit");
        Ok(missing.map(|(id, _)| (*id).clone()))
    }

    /// Indexes a pack and checks every object in it, including the objects that it refers to.
    pub(super) async fn index(&self, pack: &[u8], limit: u64) -> Result<(), ScmError> {
        let command = self
            .git
            .command("index-pack --stdin --fix-thin --strict")
            .arg(format!("--max-input-size={limit}"))
            .stdin(pack);
        let exit = self.git.exit(&command).await?;
        if exit.success() {
            return Ok(());
        }
        let said = message(&exit);
        if FULL_DISK.iter().any(|text| said.contains(text)) {
            let full = ScmError::file("check the work in", self.dir.path());
            return Err(full(io::ErrorKind::StorageFull.into()));
        }
        Err(HandBackRefusal::Objects(said).into())
    }

    /// Returns an error unless `tip` descends from `base`.
    pub(super) async fn check_descends(&self, tip: &ObjectId, base: &ObjectId) -> Result<(), ScmError> {
        let command = self
            .git
            .command("merge-base --is-ancestor")
            .args([base.as_str(), tip.as_str()]);
        let exit = self.git.exit(&command).await?;
        if exit.status == ExitStatus::Code(1) {
            let (base, tip) = (base.clone(), tip.clone());
            return Err(HandBackRefusal::Rewritten { base, tip }.into());
        }
        output(&command, &exit).map(drop)
    }

    /// The new commits. Returns an error if one contains a forbidden name or a file of the run.
    pub(super) async fn checked_commits(
        &self,
        tip: &ObjectId,
        known: &[ObjectId],
    ) -> Result<Vec<HistoryCommit>, ScmError> {
        let commits = new_commits(&self.git, tip, known).await?;
        for commit in &commits {
            let bad = commit
                .changes
                .iter()
                .filter(|change| change.after.is_some())
                .find_map(|change| Some((change, name_problem(&change.path)?)));
            if let Some((change, problem)) = bad {
                return Err(HandBackRefusal::Name {
                    commit: commit.id.clone(),
                    path: change.path.clone(),
                    problem,
                }
                .into());
            }
            let mut paths = commit.changes.iter().map(|change| &change.path);
            if let Some(path) = paths.find(|path| path.is_private()) {
                let (commit, path) = (commit.id.clone(), path.clone());
                return Err(HandBackRefusal::RunFile { commit, path }.into());
            }
        }
        self.check_collisions(&commits).await?;
        Ok(commits)
    }

    /// Checks each directory with a new name, as each commit left it.
    async fn check_collisions(&self, commits: &[HistoryCommit]) -> Result<(), ScmError> {
        let directories: Vec<ChangedDirectory<'_>> = commits.iter().flat_map(changed_directories).collect();
        let trees: Vec<String> = directories
            .iter()
            .map(|directory| directory.tree.to_string())
            .collect();
        let found = objects::read(&self.git, &trees).await?;
        for (directory, tree) in directories.iter().zip(found) {
            let names = tree.and_then(|tree| tree_names(&tree.bytes, self.id_bytes));
            let names =
                names.ok_or_else(|| HandBackRefusal::Objects(format!("{} is not a tree", directory.tree)))?;
            if let Some((one, other)) = collision(&names, &directory.added) {
                return Err(HandBackRefusal::Collision {
                    commit: directory.commit.clone(),
                    one: directory.join(one),
                    other: directory.join(other),
                }
                .into());
            }
        }
        Ok(())
    }
}

/// A directory in which a commit added names.
struct ChangedDirectory<'a> {
    commit: &'a ObjectId,
    path: &'a [u8],
    tree: &'a ObjectId,
    added: HashSet<&'a [u8]>,
}

impl ChangedDirectory<'_> {
    fn join(&self, name: &[u8]) -> RepoPath {
        match self.path {
            b"" => RepoPath::new(name),
            path => RepoPath::new([path, b"/", name].concat()),
        }
    }
}

fn changed_directories(commit: &HistoryCommit) -> Vec<ChangedDirectory<'_>> {
    let mut added: BTreeMap<&[u8], HashSet<&[u8]>> = BTreeMap::new();
    for change in commit.changes.iter().filter(|change| is_new(change)) {
        let (dir, name) = change.path.split();
        added.entry(dir).or_default().insert(name);
    }
    let after: HashMap<&[u8], &ObjectId> = commit
        .changes
        .iter()
        .filter_map(|change| Some((change.path.as_bytes(), &change.after.as_ref()?.id)))
        .collect();
    added
        .into_iter()
        .filter_map(|(path, added)| {
            let tree = if path.is_empty() {
                Some(&commit.tree)
            } else {
                after.get(path).copied()
            };
            Some(ChangedDirectory {
                commit: &commit.id,
                path,
                tree: tree?,
                added,
            })
        })
        .collect()
}

fn is_new(change: &TreeChange) -> bool {
    change.before.is_none() && change.after.is_some()
}
