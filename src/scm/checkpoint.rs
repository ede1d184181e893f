//! A run's state as commits on `refs/ralph/<run>/state`, moved by compare-and-swap.
//!
//! Each commit's tree is the previous one's with what changed written over it, so that a checkpoint costs the same
//! after 200 iterations as after one. Its objects are loose, as those of any small commit: some twenty an iteration.
//! Nothing here packs the user's repository; their own `git gc --auto` does, and keeps what the ref reaches.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tempfile::TempDir;

use super::entry::TREE;
use super::error::ScmError;
use super::git::unexpected;
use super::import::{Date, Import, NewCommit, Target, read_mark};
use super::objects;
use super::path::{RepoPath, name_problem};
use super::repository::{Expect, Repository};
use crate::id::{ObjectId, RunId};

/// Where the tree of the working directory stands in a checkpoint.
const WORK: &str = "work";

/// The checkpoints of one run in the user's repository.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    repository: Repository,
    run: RunId,
}

/// What a new checkpoint holds beyond what the previous one did.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The iteration that ended.
    pub iteration: u64,
    /// The branch's tip.
    pub tip: &'a ObjectId,
    /// The tree of the working directory.
    pub work_tree: &'a ObjectId,
    /// Files that are new or have changed; those of earlier checkpoints stay.
    pub files: &'a [StateFile],
    /// When.
    pub at: Timestamp,
}

/// A file of the run's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    /// Its path in the checkpoint, for example `ralph/progress.md`, `journal/000012.jsonl` or `lease.json`.
    pub path: String,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// A checkpoint that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The commit it is in.
    pub commit: ObjectId,
    /// The iteration that had ended.
    pub iteration: u64,
    /// The branch's tip.
    pub tip: ObjectId,
    /// The tree of the working directory.
    pub work_tree: ObjectId,
}

impl Checkpoints {
    /// The checkpoints of this run.
    #[must_use]
    pub fn new(repository: Repository, run: RunId) -> Self {
        Self { repository, run }
    }

    /// The full name of the ref.
    #[must_use]
    pub fn ref_name(&self) -> String {
        format!("refs/ralph/{}/state", self.run)
    }

    /// Saves a checkpoint on top of `expected`, the last one; [`ScmError::RefMoved`] when someone else saved one since.
    ///
    /// The tip and the tree must be in the user's repository already.
    pub async fn save(
        &self,
        expected: Option<&ObjectId>,
        content: &Content<'_>,
    ) -> Result<ObjectId, ScmError> {
        let message = message(&self.run, content);
        let commit = NewCommit {
            committer: "ralph <ralph@localhost>",
            date: Date::At(content.at.as_second()),
            message: &message,
            from: expected,
            merge: Some(content.tip),
        };
        let scratch = format!("refs/ralph/{}/saving", self.run);
        let mut import = Import::new(Target::Scratch(&scratch), &commit);
        import.put(&WORK.into(), TREE, content.work_tree);
        for file in content.files {
            import.write(&state_path(&file.path)?, &file.bytes);
        }
        let git = &self.repository.git;
        let mark = Mark::new()?;
        let command = import.finish_in_silence(git.command(), self.repository.object_format(), &mark.path()?);
        git.run(&command).await?;
        let saved = mark.read()?;
        self.repository
            .update_ref(&self.ref_name(), &saved, Expect::from_found(expected))
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

    /// One file of a checkpoint.
    pub async fn file(&self, checkpoint: &ObjectId, path: &str) -> Result<Option<Vec<u8>>, ScmError> {
        state_path(path)?;
        let mut found = objects::read(&self.repository.git, &[format!("{checkpoint}:{path}")]).await?;
        Ok(found.pop().flatten().map(|object| object.bytes))
    }

    /// All files of a checkpoint in a directory and below it.
    pub async fn files_in(&self, checkpoint: &ObjectId, dir: &str) -> Result<Vec<StateFile>, ScmError> {
        state_path(dir)?;
        let git = &self.repository.git;
        let listing = git.command().args([
            "ls-tree",
            "-r",
            "-z",
            "--full-tree",
            checkpoint.as_str(),
            "--",
            &format!("{dir}/"),
        ]);
        let printed = git.run(&listing).await?;
        let text = String::from_utf8_lossy(&printed);
        let entries: Vec<(&str, &str)> = text.split_terminator('\0').filter_map(id_and_path).collect();
        let ids: Vec<String> = entries.iter().map(|(id, _)| (*id).to_owned()).collect();
        let found = objects::read(git, &ids).await?;
        let files = entries.iter().zip(found).filter_map(|((_, path), object)| {
            Some(StateFile {
                path: (*path).to_owned(),
                bytes: object?.bytes,
            })
        });
        Ok(files.collect())
    }
}

/// Where git leaves the id of a new commit. Whoever saves has one of their own: of two that do so at a time, neither may
/// take the other's commit for theirs. And none is in the user's repository, where a kill would leave it.
struct Mark(TempDir);

impl Mark {
    fn new() -> Result<Self, ScmError> {
        let dir = tempfile::tempdir();
        dir.map(Self)
            .map_err(|source| failed("make", Path::new("temporary directory"), source))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("commit")
    }

    fn path(&self) -> Result<String, ScmError> {
        let unreadable =
            |path: OsString| failed("name", path.as_ref(), io::ErrorKind::InvalidFilename.into());
        self.file().into_os_string().into_string().map_err(unreadable)
    }

    fn read(&self) -> Result<ObjectId, ScmError> {
        let file = self.file();
        let text = std::fs::read(&file).map_err(|source| failed("read", &file, source))?;
        read_mark(&text)
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> ScmError {
    let path = path.to_owned();
    ScmError::File {
        operation,
        path,
        source,
    }
}

/// From `100644 blob <id><TAB><path>`.
fn id_and_path(entry: &str) -> Option<(&str, &str)> {
    let (object, path) = entry.split_once('\t')?;
    Some((object.rsplit(' ').next()?, path))
}

/// A path that can be written and read back, and is not the working directory's.
fn state_path(path: &str) -> Result<RepoPath, ScmError> {
    let repo_path = RepoPath::from(path);
    let taken = repo_path.components().next() == Some(WORK.as_bytes());
    if taken || path.contains(char::is_control) || name_problem(&repo_path).is_some() {
        return Err(ScmError::StatePath(path.to_owned()));
    }
    Ok(repo_path)
}

fn message(run: &RunId, content: &Content<'_>) -> String {
    let Content {
        iteration,
        tip,
        work_tree,
        ..
    } = content;
    format!(
        "Checkpoint of run {run} after iteration {iteration}\n\nIteration: {iteration}\nTip: {tip}\nWork-tree: {work_tree}\n"
    )
}

fn parse(commit: ObjectId, bytes: &[u8]) -> Option<Checkpoint> {
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
