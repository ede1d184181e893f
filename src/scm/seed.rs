//! The packs that new clones are created from.

use std::path::{Path, PathBuf};

use super::error::ScmError;
use super::git::one_id;
use super::repository::Repository;
use crate::id::ObjectId;

/// A pack on the host with exactly what some objects reach: no deleted or unpushed commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedPack {
    files: [PathBuf; 2],
}

impl SeedPack {
    /// Packs what `wanted` reaches and `have` does not into `dir`. Any number of clones can use the result.
    ///
    /// Deltas of the repository's own packs are reused.
    pub async fn create(
        repository: &Repository,
        wanted: &[&ObjectId],
        have: &[&ObjectId],
        dir: &Path,
    ) -> Result<Self, ScmError> {
        let objects = dir.join("objects");
        repository
            .borrow_objects(&objects)
            .map_err(ScmError::file("create", dir))?;
        let base = dir.join("pack");
        let wanted = wanted.iter().map(ToString::to_string);
        let revisions: Vec<String> = wanted.chain(have.iter().map(|id| format!("^{id}"))).collect();
        let command = repository
            .git
            .command("pack-objects --quiet --revs --delta-base-offset --no-write-bitmap-index")
            .arg(base.to_string_lossy())
            // Git writes a pack into its object store and then renames it, which fails between two file systems.
            .env("GIT_OBJECT_DIRECTORY", objects.to_string_lossy())
            .stdin(revisions.join("\n") + "\n");
        let name = one_id(&repository.git.run(&command).await?)?;
        let file = |extension: &str| dir.join(format!("pack-{name}.{extension}"));
        Ok(Self {
            // In this order, because git uses a pack as soon as its index exists.
            files: [file("pack"), file("idx")],
        })
    }

    /// The pack and its index, in the order in which they have to be copied into a repository.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }
}
