//! A temporary bare repository, for commits that are pushed and not kept.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use tempfile::TempDir;

use super::error::ScmError;
use super::git::one_id;
use super::repository::{ObjectFormat, Repository};
use crate::id::ObjectId;

/// A bare repository in a temporary directory, which goes with it. It has no objects of any other repository.
#[derive(Debug)]
pub struct ScratchRepository {
    /// The repository.
    pub repository: Repository,
    _dir: TempDir,
}

impl ScratchRepository {
    /// Creates one on the same host as `like`, with the same hash function.
    pub fn create(like: &Repository) -> Result<Self, ScmError> {
        let failed = ScmError::file("create a repository in", Path::new("temporary directory"));
        let dir = TempDir::with_prefix("ralph-scratch-").map_err(failed)?;
        let format = like.object_format();
        std::fs::create_dir(dir.path().join("objects"))
            .and_then(|()| write_layout(dir.path(), format))
            .map_err(ScmError::file("create a repository in", dir.path()))?;
        Ok(Self {
            repository: like.at(dir.path()),
            _dir: dir,
        })
    }
}

impl Repository {
    /// Creates a commit with this message, without files and without a parent. Equal words and times give the same commit.
    pub async fn commit_message(&self, message: &str, at: Timestamp) -> Result<ObjectId, ScmError> {
        let tree = self.object_format().empty_tree();
        let mut command = self.git.command("commit-tree -F -").arg(tree).stdin(message);
        for role in ["AUTHOR", "COMMITTER"] {
            command = command
                .env(format!("GIT_{role}_NAME"), "ralph")
                .env(format!("GIT_{role}_EMAIL"), "ralph@localhost")
                .env(format!("GIT_{role}_DATE"), format!("{} +0000", at.as_second()));
        }
        one_id(&self.git.run(&command).await?)
    }
}

/// Writes the files that make a directory a bare repository, but for its objects. Nothing is synced to disk, because the
/// repository does not outlive this process.
pub(super) fn write_layout(dir: &Path, format: ObjectFormat) -> io::Result<()> {
    let config = format!(
        "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\tfsync = none\n[extensions]\n\tobjectFormat = {}\n",
        format.name()
    );
    std::fs::create_dir_all(dir.join("refs"))?;
    std::fs::write(dir.join("HEAD"), "ref: refs/heads/none\n")?;
    std::fs::write(dir.join("config"), config)
}
