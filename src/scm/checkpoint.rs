//! Checkpoints: the state of a run as commits on `refs/ralph/<run>/state`, which moves by compare-and-swap.
//!
//! The tree of each commit is the previous tree with the changed files, so a checkpoint costs the same after 200
//! iterations as after one. An iteration adds about twenty loose objects. ralph never packs the user's repository; the
//! user's own `git gc --auto` does, and keeps what the ref reaches.

use jiff::Timestamp;

use super::entry::TREE;
use super::error::ScmError;
use super::git::unexpected;
use super::import::{CommitSpec, FastImport, ImportRef};
use super::objects::{self, GitObject};
use super::path::{RepoPath, name_problem};
use super::repository::Repository;
use super::state_remote::StateRemote;
use crate::id::{ObjectId, RunId};

/// The directory of a checkpoint that contains the tree of the working directory.
const WORK: &str = "work";

/// The checkpoints of one run in the user's repository.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    repository: Repository,
    run: RunId,
    pub(super) remote: Option<StateRemote>,
}

/// What a new checkpoint adds to the previous one.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointContent<'a> {
    /// The iteration that ended.
    pub iteration: u64,
    /// The tip of the branch.
    pub tip: &'a ObjectId,
    /// The tree of the working directory.
    pub work_tree: &'a ObjectId,
    /// New and changed files. Those of earlier checkpoints stay.
    pub files: &'a [StateFile],
    /// The time.
    pub at: Timestamp,
}

/// A file of the run's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    /// Its path in the checkpoint, for example `ralph/progress.md`, `journal/000012.jsonl` or `lease.json`.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A saved checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its commit.
    pub commit: ObjectId,
    /// The iteration that ended.
    pub iteration: u64,
    /// The tip of the branch.
    pub tip: ObjectId,
    /// The tree of the working directory.
    pub work_tree: ObjectId,
}

impl Checkpoints {
    /// The checkpoints of this run.
    #[must_use]
    pub fn new(repository: Repository, run: RunId) -> Self {
        Self {
            repository,
            run,
            remote: None,
        }
    }

    /// Also pushes each checkpoint to this repository before it counts. Its ref decides, so that the run can go on elsewhere:
    /// [`Checkpoints::sync`] first.
    #[must_use]
    pub fn with_remote(self, remote: Option<StateRemote>) -> Self {
        Self { remote, ..self }
    }

    /// The user's repository.
    #[must_use]
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The full name of the ref.
    #[must_use]
    pub fn ref_name(&self) -> String {
        state_ref(&self.run)
    }

    /// Saves a checkpoint on top of `expected`, the last one. Returns [`ScmError::RefMoved`] if another process saved one
    /// since. The tip and the tree must already be in the user's repository.
    pub async fn save(
        &self,
        expected: Option<&ObjectId>,
        content: &CheckpointContent<'_>,
    ) -> Result<ObjectId, ScmError> {
        let message = message(&self.run, content);
        let commit = CommitSpec {
            committer: "ralph <ralph@localhost>",
            date: Some(content.at.as_second()),
            message: &message,
            from: expected,
            merge: Some(content.tip),
        };
        let scratch = format!("refs/ralph/{}/saving", self.run);
        let mut import = FastImport::new(ImportRef::Discard(&scratch), &commit);
        import.put(&WORK.into(), TREE, content.work_tree);
        for file in content.files {
            import.write(&state_path(&file.path)?, &file.bytes);
        }
        let saved = self.repository.import(import).await?;
        self.push(&saved, expected).await?;
        self.repository
            .update_ref(&self.ref_name(), &saved, expected)
            .await?;
        Ok(saved)
    }

    /// The last checkpoint.
    pub async fn load(&self) -> Result<Option<Checkpoint>, ScmError> {
        let mut found = objects::read(&self.repository.git, &[self.ref_name()]).await?;
        let Some(object) = found.pop().flatten() else {
            return Ok(None);
        };
        let checkpoint =
            parse(object.id, &object.bytes).ok_or_else(|| unexpected("a checkpoint", &object.bytes))?;
        Ok(Some(checkpoint))
    }

    /// Reads one file of a checkpoint.
    pub async fn file(&self, checkpoint: &ObjectId, path: &str) -> Result<Option<Vec<u8>>, ScmError> {
        state_path(path)?;
        let mut found = objects::read(&self.repository.git, &[format!("{checkpoint}:{path}")]).await?;
        Ok(found.pop().flatten().map(|object| object.bytes))
    }

    /// Reads all files of a checkpoint below a directory. One whose object is missing is an error.
    pub async fn files_in(&self, checkpoint: &ObjectId, dir: &str) -> Result<Vec<StateFile>, ScmError> {
        state_path(dir)?;
        let git = &self.repository.git;
        let listing =
            git.command("ls-tree -r -z --full-tree")
                .args([checkpoint.as_str(), "--", &format!("{dir}/")]);
        let printed = git.run(&listing).await?;
        let text = String::from_utf8_lossy(&printed);
        let entries: Vec<(&str, &str)> = text.split_terminator('\0').filter_map(id_and_path).collect();
        let ids: Vec<String> = entries.iter().map(|(id, _)| (*id).to_owned()).collect();
        let found = objects::read(git, &ids).await?;
        let file = |((id, path), object): ((&str, &str), Option<GitObject>)| match object {
            Some(object) => Ok(StateFile {
                path: path.to_owned(),
                bytes: object.bytes,
            }),
            None => Err(ScmError::MissingObject {
                id: id.to_owned(),
                path: path.to_owned(),
            }),
        };
        entries.into_iter().zip(found).map(file).collect()
    }
}

impl Repository {
    /// The runs that have a state ref in this repository.
    pub async fn runs_with_state(&self) -> Result<Vec<RunId>, ScmError> {
        let command = self
            .git
            .command("for-each-ref --format=%(refname) refs/ralph/*/state");
        let printed = self.git.run(&command).await?;
        let text = String::from_utf8_lossy(&printed);
        let names = text.lines().filter_map(|name| {
            let run = name.strip_prefix("refs/ralph/")?.strip_suffix("/state")?;
            RunId::parse(run).ok()
        });
        Ok(names.collect())
    }
}

/// The full name of the state ref of a run.
pub(super) fn state_ref(run: &RunId) -> String {
    format!("refs/ralph/{run}/state")
}

/// Parses `100644 blob <id><TAB><path>`.
fn id_and_path(entry: &str) -> Option<(&str, &str)> {
    let (object, path) = entry.split_once('\t')?;
    Some((object.rsplit(' ').next()?, path))
}

/// Checks that a path can be written and read back, and is not in the tree of the working directory.
fn state_path(path: &str) -> Result<RepoPath, ScmError> {
    let repo_path = RepoPath::from(path);
    let taken = repo_path.components().next() == Some(WORK.as_bytes());
    if taken || path.contains(char::is_control) || name_problem(&repo_path).is_some() {
        return Err(ScmError::StatePath(path.to_owned()));
    }
    Ok(repo_path)
}

fn message(run: &RunId, content: &CheckpointContent<'_>) -> String {
    let CheckpointContent {
        iteration,
        tip,
        work_tree,
        ..
    } = content;
    format!(
        "Checkpoint of run {run} after iteration {iteration}\n\nIteration: {iteration}\nTip: {tip}\nWork-tree: {work_tree}\n"
    )
}

pub(super) fn parse(commit: ObjectId, bytes: &[u8]) -> Option<Checkpoint> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_headers, message) = text.split_once("\n\n")?;
    let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name));
    Some(Checkpoint {
        commit,
        iteration: field("Iteration: ")?.parse().ok()?,
        tip: ObjectId::parse(field("Tip: ")?).ok()?,
        work_tree: ObjectId::parse(field("Work-tree: ")?).ok()?,
    })
}
