//! The packs that clones are seeded with.

use std::path::{Path, PathBuf};

use super::error::ScmError;
use super::git::one_id;
use super::repository::Repository;
use crate::id::ObjectId;

/// A pack on the host with everything that some objects reach, and nothing else: no deleted or unpushed commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedPack {
    files: [PathBuf; 2],
}

impl SeedPack {
    /// Packs what the wanted commits and trees reach, without what the repository that gets it has, into `dir`; many clones can be seeded with the result.
    ///
    /// Deltas are taken over from the repository's own packs as they are.
    pub async fn make(
        repository: &Repository,
        wanted: &[&ObjectId],
        have: &[&ObjectId],
        dir: &Path,
    ) -> Result<Self, ScmError> {
        let objects = objects_beside(repository, dir).map_err(|source| ScmError::File {
            operation: "make the directory",
            path: dir.to_owned(),
            source,
        })?;
        let base = dir.join("pack");
        let wanted = wanted.iter().map(ToString::to_string);
        let revisions: Vec<String> = wanted.chain(have.iter().map(|id| format!("^{id}"))).collect();
        let command = repository
            .git
            .command()
            .args([
                "pack-objects",
                "--quiet",
                "--revs",
                "--delta-base-offset",
                "--no-write-bitmap-index",
            ])
            .arg(base.to_string_lossy())
            .env("GIT_OBJECT_DIRECTORY", objects.to_string_lossy())
            .stdin(revisions.join("\n") + "\n");
        let name = one_id(&repository.git.run(&command).await?)?;
        let file = |extension: &str| dir.join(format!("pack-{name}.{extension}"));
        Ok(Self {
            // In this order: git takes a pack for complete once its index is there.
            files: [file("pack"), file("idx")],
        })
    }

    /// The pack and its index, in the order in which they are put into a repository.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }
}

/// An object store in `dir` that reads the repository's. Git makes a pack in its object store and moves it to where it
/// was asked for, which does not work from one file system to another.
fn objects_beside(repository: &Repository, dir: &Path) -> std::io::Result<PathBuf> {
    let objects = dir.join("objects");
    std::fs::create_dir_all(objects.join("info"))?;
    std::fs::create_dir_all(objects.join("pack"))?;
    let alternate = repository.common_dir().join("objects");
    std::fs::write(
        objects.join("info/alternates"),
        format!("{}\n", alternate.display()),
    )?;
    Ok(objects)
}
