//! Finds the main worktree of a repository.

use std::fs;
use std::path::{Path, PathBuf};

/// The main worktree of the repository that contains `path`. Reads git's own files and starts no process. Returns the
/// current worktree if the repository is bare, and `path` if there is no repository.
#[must_use]
pub fn main_worktree(path: &Path) -> PathBuf {
    let Some(worktree) = path.ancestors().find(|dir| dir.join(".git").exists()) else {
        return path.to_owned();
    };
    linked_from(worktree).unwrap_or_else(|| worktree.to_owned())
}

/// The main worktree of a linked one. Its `.git` is a file with the path of a directory, whose `commondir` has the path of
/// the common git directory.
fn linked_from(worktree: &Path) -> Option<PathBuf> {
    let link = fs::read_to_string(worktree.join(".git")).ok()?;
    let git_dir = worktree.join(link.strip_prefix("gitdir:")?.trim());
    let common = fs::read_to_string(git_dir.join("commondir")).ok()?;
    let common = fs::canonicalize(git_dir.join(common.trim())).ok()?;
    let is_usual = common.file_name().is_some_and(|name| name == ".git");
    is_usual.then(|| common.parent().map(Path::to_owned)).flatten()
}
