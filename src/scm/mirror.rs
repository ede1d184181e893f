//! What a repository is asked for beside refs: a mirror of a remote one, its trees, a diff for a person.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::ScmError;
use super::git::{on_host, one_id, output};
use super::repository::Repository;
use crate::exec::{Command, Host};
use crate::id::ObjectId;

/// How much of a diff is shown to a person.
const DIFF_SHOWN: usize = 64 * 1024 * 1024;

/// How much of a diff a person wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffKind {
    /// Every line.
    Patch,
    /// The names of files and how much changed in each.
    Stat,
}

impl Repository {
    /// A bare mirror of a remote repository below `dir`, made or brought up to date. It plays the user's repository.
    ///
    /// The user's own git settings and credential helpers are used: the remote is theirs.
    pub async fn mirror(host: Host, url: &str, dir: &Path) -> Result<Self, ScmError> {
        let name = Sha256::digest(url)
            .iter()
            .take(8)
            .fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        let path = dir.join(format!("{name:016x}.git"));
        std::fs::create_dir_all(dir).map_err(|source| ScmError::File {
            operation: "make the directory",
            path: dir.to_owned(),
            source,
        })?;
        let git = Command::new("git").env("GIT_TERMINAL_PROMPT", "0");
        let command = if path.join("HEAD").exists() {
            git.args([
                "fetch",
                "--quiet",
                "origin",
                "+refs/heads/*:refs/heads/*",
                "+refs/tags/*:refs/tags/*",
            ])
            .cwd(&path)
        } else {
            git.args(["clone", "--quiet", "--bare", "--", url, &path.to_string_lossy()])
                .cwd(dir)
        };
        let exit = on_host(&host, &command).await?;
        output(&command, &exit)?;
        Self::open(host, &path).await
    }

    /// The tree of a commit.
    pub async fn tree_of(&self, commit: &ObjectId) -> Result<ObjectId, ScmError> {
        let command = self
            .git
            .command()
            .args(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]);
        one_id(&self.git.run(&command).await?)
    }

    /// What differs between two commits or trees, for a person.
    pub async fn diff_text(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        kind: DiffKind,
    ) -> Result<String, ScmError> {
        let form = match kind {
            DiffKind::Patch => "--patch",
            DiffKind::Stat => "--stat",
        };
        let command = self
            .git
            .command()
            .args([
                "diff",
                "--no-ext-diff",
                "--no-textconv",
                "--no-color",
                form,
                from.as_str(),
                to.as_str(),
            ])
            .keep(DIFF_SHOWN);
        let exit = self.git.exit(&command).await?;
        Ok(exit.stdout.text())
    }
}
