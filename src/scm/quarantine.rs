//! A repository that exists while a hand-back is looked at. It sees the user's objects and is thrown away.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::entry::EntryChange;
use super::error::{Refusal, ScmError};
use super::git::{GitDir, message, output};
use super::history::{Commit, new_commits};
use super::objects::{self, tree_names};
use super::path::{RepoPath, collision, name_problem};
use super::repository::Repository;
use crate::exec::ExitStatus;
use crate::id::ObjectId;

/// A bare repository in a temporary directory, on top of the user's objects.
pub(super) struct Quarantine {
    pub(super) git: GitDir,
    id_bytes: usize,
    dir: TempDir,
}

impl Quarantine {
    /// Makes it in a new directory below `parent`.
    pub(super) fn make(repository: &Repository, parent: &Path) -> Result<Self, ScmError> {
        let failed = |source| ScmError::File {
            operation: "make a quarantine in",
            path: parent.to_owned(),
            source,
        };
        std::fs::create_dir_all(parent).map_err(failed)?;
        let dir = tempfile::Builder::new()
            .prefix("quarantine-")
            .tempdir_in(parent)
            .map_err(failed)?;
        let format = repository.object_format();
        // It does not outlive this process, so that nothing in it needs to be synced to disk.
        let config = format!(
            "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\tfsync = none\n[extensions]\n\tobjectFormat = {}\n",
            format.name()
        );
        let alternates = format!("{}\n", repository.common_dir().join("objects").display());
        let fill = || {
            std::fs::create_dir_all(dir.path().join("objects/info"))?;
            std::fs::create_dir_all(dir.path().join("objects/pack"))?;
            std::fs::create_dir_all(dir.path().join("refs"))?;
            std::fs::write(dir.path().join("HEAD"), "ref: refs/heads/none\n")?;
            std::fs::write(dir.path().join("config"), config)?;
            std::fs::write(dir.path().join("objects/info/alternates"), alternates)
        };
        fill().map_err(failed)?;
        Ok(Self {
            git: repository.git.beside(dir.path().to_owned()),
            id_bytes: format.id_bytes(),
            dir,
        })
    }

    /// Where the bundle is copied to.
    pub(super) fn bundle_file(&self) -> PathBuf {
        self.dir.path().join("bundle")
    }

    /// Which of these commits exist neither here nor in the user's repository.
    pub(super) async fn missing(&self, commits: &[&ObjectId]) -> Result<Option<ObjectId>, ScmError> {
        if commits.is_empty() {
            return Ok(None);
        }
        let names: Vec<&str> = commits.iter().map(|id| id.as_str()).collect();
        let command = self
            .git
            .command()
            .args(["cat-file", "--batch-check=%(objecttype)"])
            .stdin(names.join("\n") + "\n");
        let printed = self.git.run(&command).await?;
        let lines = printed.split(|byte| *byte == b'\n');
        let missing = commits.iter().zip(lines).find(|(_, line)| *line != b"commit");
        Ok(missing.map(|(id, _)| (*id).clone()))
    }

    /// Lets git check every object of a pack, what it refers to included.
    pub(super) async fn index(&self, pack: &[u8], limit: u64) -> Result<(), ScmError> {
        let command = self
            .git
            .command()
            .args(["index-pack", "--stdin", "--fix-thin", "--strict"])
            .arg(format!("--max-input-size={limit}"))
            .stdin(pack);
        let exit = self.git.exit(&command).await?;
        if exit.success() {
            Ok(())
        } else {
            Err(Refusal::Objects(message(&exit)).into())
        }
    }

    /// Makes sure that `tip` descends from `base`.
    pub(super) async fn descends(&self, tip: &ObjectId, base: &ObjectId) -> Result<(), ScmError> {
        let args = ["merge-base", "--is-ancestor", base.as_str(), tip.as_str()];
        let command = self.git.command().args(args);
        let exit = self.git.exit(&command).await?;
        if exit.status == ExitStatus::Code(1) {
            let (base, tip) = (base.clone(), tip.clone());
            return Err(Refusal::Rewritten { base, tip }.into());
        }
        output(&command, &exit).map(drop)
    }

    /// The new commits, once every name in them is known to be harmless.
    pub(super) async fn new_commits(
        &self,
        tip: &ObjectId,
        known: &[ObjectId],
    ) -> Result<Vec<Commit>, ScmError> {
        let commits = new_commits(&self.git, tip, known).await?;
        for commit in &commits {
            let bad = commit
                .changes
                .iter()
                .filter(|change| change.after.is_some())
                .find_map(|change| Some((change, name_problem(&change.path)?)));
            if let Some((change, problem)) = bad {
                let (commit, path) = (commit.id.clone(), change.path.clone());
                return Err(Refusal::Name {
                    commit,
                    path,
                    problem,
                }
                .into());
            }
        }
        self.check_collisions(&commits).await?;
        Ok(commits)
    }

    /// Looks at each directory that got a new name, in the state each commit left it in.
    async fn check_collisions(&self, commits: &[Commit]) -> Result<(), ScmError> {
        let directories: Vec<Directory<'_>> = commits.iter().flat_map(changed_directories).collect();
        let trees: Vec<String> = directories
            .iter()
            .map(|directory| directory.tree.to_string())
            .collect();
        let found = objects::read(&self.git, &trees).await?;
        for (directory, tree) in directories.iter().zip(found) {
            let names = tree.and_then(|tree| tree_names(&tree.bytes, self.id_bytes));
            let names = names.ok_or_else(|| Refusal::Objects(format!("{} is no tree", directory.tree)))?;
            if let Some((one, other)) = collision(&names, &directory.added) {
                return Err(Refusal::Collision {
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
struct Directory<'a> {
    commit: &'a ObjectId,
    path: &'a [u8],
    tree: &'a ObjectId,
    added: HashSet<&'a [u8]>,
}

impl Directory<'_> {
    fn join(&self, name: &[u8]) -> RepoPath {
        match self.path {
            b"" => RepoPath::new(name),
            path => RepoPath::new([path, b"/", name].concat()),
        }
    }
}

fn changed_directories(commit: &Commit) -> Vec<Directory<'_>> {
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
            Some(Directory {
                commit: &commit.id,
                path,
                tree: tree?,
                added,
            })
        })
        .collect()
}

fn is_new(change: &EntryChange) -> bool {
    change.before.is_none() && change.after.is_some()
}
