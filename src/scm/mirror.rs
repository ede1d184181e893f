//! Mirrors of remote repositories, and diffs for people.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use super::branch::is_below;
use super::error::ScmError;
use super::git::{MAX_OUTPUT, TIMEOUT, failure, one_id, output, run_on_host};
use super::push::Remote;
use super::repository::Repository;
use crate::exec::{Command, Host};
use crate::id::ObjectId;
use crate::secret::Redactor;

/// How often a lock is tried that another process has.
const LOCK_RETRY: Duration = Duration::from_millis(100);

/// The arguments that update a mirror.
const FETCH: &str = "fetch --quiet origin +refs/heads/*:refs/heads/* +refs/tags/*:refs/tags/*";

/// The arguments that list what it is a mirror of.
const LIST: &str = "ls-remote --quiet --heads --tags --refs origin";

/// A diff for people. One that is too long lacks its middle, where a line says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownDiff {
    /// The text.
    pub text: String,
    /// The length of the whole diff.
    pub bytes: u64,
}

/// Locks a directory until the result is dropped.
async fn lock(path: &Path) -> Result<File, ScmError> {
    let file = File::open(path).map_err(ScmError::file("open", path))?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => sleep(LOCK_RETRY).await,
            Err(error) => return Err(ScmError::file("lock", path)(error.into())),
        }
    }
}

impl Repository {
    /// Creates or updates a bare mirror of a remote repository below `dir`. It replaces the user's repository.
    ///
    /// Uses the user's own git settings, and their credential helpers unless a credential is given.
    pub async fn mirror(
        host: Host,
        url: &str,
        dir: &Path,
        credential: Option<&Remote>,
    ) -> Result<Self, ScmError> {
        let name = Sha256::digest(url)
            .iter()
            .take(8)
            .fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        let path = dir.join(format!("{name:016x}.git"));
        std::fs::create_dir_all(dir).map_err(ScmError::file("create", dir))?;
        // Two processes cannot update the same refs at the same time.
        let _one_at_a_time = lock(dir).await?;
        let git = Command::new("git")
            .env("GIT_TERMINAL_PROMPT", "0")
            .timeout(TIMEOUT);
        let git = match credential {
            Some(remote) => remote.apply(git),
            None => git,
        };
        if path.join("HEAD").exists() {
            let mirror = Self::open(host, &path).await?;
            mirror.fetch(&git.cwd(&path)).await?;
            return Ok(mirror);
        }
        let command = git
            .args(["clone", "--quiet", "--bare", "--", url, &path.to_string_lossy()])
            .cwd(dir);
        let exit = run_on_host(&host, &command).await?;
        output(&command, &exit)?;
        Self::open(host, &path).await
    }

    /// Updates the branches and tags of a mirror. `git` is the command without its arguments.
    async fn fetch(&self, git: &Command) -> Result<(), ScmError> {
        let fetch = git.clone().args(FETCH.split(' '));
        let Err(failed) = self.git.run(&fetch).await else {
            return Ok(());
        };
        let list = git.clone().args(LIST.split(' ')).keep(MAX_OUTPUT);
        let Ok(listed) = self.git.run(&list).await else {
            return Err(failed);
        };
        if !self.drop_replaced(&String::from_utf8_lossy(&listed)).await? {
            return Err(failed);
        }
        self.git.run(&fetch).await.map(drop)
    }

    /// Deletes the branches and tags that are not in this list of `git ls-remote`, and in the way of one that is: the remote
    /// deleted `a` and created `a/b`. All others stay, because they may be those of runs; one of a run goes only if the remote
    /// created a branch in its place. Returns whether there were any.
    async fn drop_replaced(&self, listed: &str) -> Result<bool, ScmError> {
        let remote = listed.lines().filter_map(|line| line.split_once('\t'));
        let remote: HashSet<&str> = remote.map(|(_, name)| name).collect();
        let listing = self
            .git
            .command("for-each-ref --format=%(refname) refs/heads refs/tags");
        let printed = self.git.run(&listing).await?;
        let mut has_dropped = false;
        for name in String::from_utf8_lossy(&printed).lines() {
            let is_replaced = |other: &&str| is_below(name, other) || is_below(other, name);
            if !remote.contains(name) && remote.iter().any(is_replaced) {
                self.delete_ref(name).await?;
                tracing::warn!(
                    name,
                    "removed a branch or tag of a mirror, because the remote has another in its place"
                );
                has_dropped = true;
            }
        }
        Ok(has_dropped)
    }

    /// The tree of a commit.
    pub async fn tree_of(&self, commit: &ObjectId) -> Result<ObjectId, ScmError> {
        let command = self.git.command(&format!("rev-parse --verify {commit}^{{tree}}"));
        one_id(&self.git.run(&command).await?)
    }

    /// The differences between two commits or trees, as text: every line, or only the number of changed lines by file.
    /// About `limit` bytes are kept, without secrets that the redactor knows and without parts of them where something is left
    /// out.
    pub async fn diff_text(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        only_counts: bool,
        limit: usize,
        redactor: &Redactor,
    ) -> Result<ShownDiff, ScmError> {
        let form = if only_counts { "--stat" } else { "--patch" };
        let command = self
            .git
            .command("diff --no-ext-diff --no-textconv --no-color")
            .args([form, from.as_str(), to.as_str()])
            .keep(limit);
        let exit = self.git.exit(&command).await?;
        if !exit.success() {
            return Err(failure(&command, &exit));
        }
        Ok(ShownDiff {
            text: exit.stdout.redacted(redactor),
            bytes: exit.stdout.total(),
        })
    }
}
