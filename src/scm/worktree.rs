//! Which directory of a repository is its main worktree.

use std::fs;
use std::path::{Path, PathBuf};

/// The main worktree of the repository that `path` is in, told by the files that git itself goes by: no process is
/// started. Where a repository has none (it is bare), the worktree at hand; outside any repository, `path`.
#[must_use]
pub fn main_worktree(path: &Path) -> PathBuf {
    let Some(worktree) = path.ancestors().find(|dir| dir.join(".git").exists()) else {
        return path.to_owned();
    };
    linked_from(worktree).unwrap_or_else(|| worktree.to_owned())
}

/// The worktree that a linked one belongs to. Its `.git` is a file that leads to a directory, where `commondir` leads on.
fn linked_from(worktree: &Path) -> Option<PathBuf> {
    let link = fs::read_to_string(worktree.join(".git")).ok()?;
    let git_dir = worktree.join(link.strip_prefix("gitdir:")?.trim());
    let common = fs::read_to_string(git_dir.join("commondir")).ok()?;
    let common = fs::canonicalize(git_dir.join(common.trim())).ok()?;
    let is_usual = common.file_name().is_some_and(|name| name == ".git");
    is_usual.then(|| common.parent().map(Path::to_owned)).flatten()
}
