//! A run's private clone inside its sandbox: creating it and resetting it.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::error::ScmError;
use super::git::{hardened, output};
use super::repository::ObjectFormat;
use super::seed::SeedPack;
use crate::exec::{Command, Discard};
use crate::id::ObjectId;
use crate::sandbox::{Sandbox, SandboxError};

/// The run files, which git ignores in a clone.
const EXCLUDE: &str = "/.ralph/\n/ralph_task.md\n";
/// The task file in a clone.
const TASK_FILE: &str = "ralph_task.md";

/// The ref at which commits are rewritten without the run files.
const REWRITE_REF: &str = "refs/ralph/rewrite";

/// A clone inside a sandbox. Git runs inside the sandbox through [`Sandbox::exec`], never on the host.
#[derive(Clone)]
pub struct PrivateClone<'a> {
    pub(super) sandbox: &'a dyn Sandbox,
    dir: PathBuf,
    pub(super) start: CloneStart,
}

/// The initial state of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneStart {
    /// The run's branch, without `refs/heads/`.
    pub branch: String,
    /// The commit that it starts from.
    pub commit: ObjectId,
    /// The author of commits.
    pub identity: CommitIdentity,
    /// The hash function of the repository.
    pub format: ObjectFormat,
}

/// The author of commits. Safe in a commit header and in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitIdentity {
    name: String,
    email: String,
}

/// A name or e-mail address that git does not accept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` cannot be used in a commit: it is empty or contains `<`, `>`, a quote, a backslash or a control character"
)]
pub struct CommitIdentityError(String);

impl CommitIdentity {
    /// Checks a name and an e-mail address.
    pub fn new(name: &str, email: &str) -> Result<Self, CommitIdentityError> {
        for text in [name, email] {
            let breaks = |c: char| c.is_control() || matches!(c, '<' | '>' | '"' | '\\');
            if text.trim().is_empty() || text.contains(breaks) {
                return Err(CommitIdentityError(text.to_owned()));
            }
        }
        Ok(Self {
            name: name.trim().to_owned(),
            email: email.trim().to_owned(),
        })
    }
}

impl Default for CommitIdentity {
    /// ralph itself, without a real address.
    fn default() -> Self {
        Self {
            name: "ralph".to_owned(),
            email: "ralph@localhost".to_owned(),
        }
    }
}

impl std::fmt::Display for CommitIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} <{}>", self.name, self.email)
    }
}

impl<'a> PrivateClone<'a> {
    /// A clone that [`PrivateClone::create`] created earlier.
    #[must_use]
    pub fn existing(sandbox: &'a dyn Sandbox, dir: PathBuf, start: CloneStart) -> Self {
        Self { sandbox, dir, start }
    }

    /// Creates a clone: empties the directory, copies the packs and checks out the branch.
    ///
    /// The packs must contain everything that the commit reaches. The clone shares nothing with the host.
    pub async fn create(
        sandbox: &'a dyn Sandbox,
        dir: PathBuf,
        seed: &[SeedPack],
        start: CloneStart,
    ) -> Result<Self, ScmError> {
        let clone = Self::existing(sandbox, dir, start);
        sandbox.files().remove(&clone.dir).await?;
        clone.init().await?;
        let packs = clone.dir.join(".git/objects/pack");
        sandbox.files().mkdir(&packs).await?;
        for file in seed.iter().flat_map(SeedPack::files) {
            let name = file.file_name().unwrap_or_default();
            sandbox.files().upload(file, &packs.join(name)).await?;
        }
        let commit = clone.start.commit.as_str();
        clone
            .git(&["-c", "checkout.workers=0", "reset", "--quiet", "--hard", commit])
            .await?;
        clone.hide_task_file().await?;
        Ok(clone)
    }

    /// Puts an uncommitted tree into the working directory of a clean clone. `HEAD` does not move.
    pub async fn restore(&self, work_tree: &ObjectId) -> Result<(), ScmError> {
        self.git(&["read-tree", "-m", "-u", "HEAD", work_tree.as_str()])
            .await?;
        self.reset_index().await
    }

    /// Resets the branch and the working directory to this commit. Ignored files and the run files stay.
    pub async fn reset_to(&self, commit: &ObjectId) -> Result<(), ScmError> {
        let branch = self.start.branch.as_str();
        self.git(&["checkout", "--quiet", "--force", "-B", branch, commit.as_str()])
            .await?;
        self.run(&self.command("clean --quiet -f -d -e /.ralph/ -e /ralph_task.md"))
            .await?;
        Ok(())
    }

    /// Rewrites the commits since the start of this clone without the run files. A commit of nothing else goes away. The
    /// working directory stays as it is.
    pub async fn drop_run_files(&self) -> Result<(), ScmError> {
        self.git(&["update-ref", REWRITE_REF, "HEAD"]).await?;
        let known = format!("^{}", self.start.commit);
        let export = self
            .git_with(&["--no-literal-pathspecs"])
            .args(["fast-export", "--no-data", "--reference-excluded-parents"])
            .args(["--reencode=no", REWRITE_REF, &known, "--"])
            .args([".", ":(top,exclude).ralph", ":(top,exclude)ralph_task.md"]);
        let commits = self.run(&export).await?;
        self.run(&self.command("fast-import --quiet --force").stdin(commits))
            .await?;
        self.git(&["update-ref", "-m", "drop run files", "HEAD", REWRITE_REF])
            .await?;
        self.reset_index().await
    }

    /// Makes the index that of `HEAD`. The working directory stays as it is.
    pub(super) async fn reset_index(&self) -> Result<(), ScmError> {
        self.git(&["reset", "--quiet", "--mixed", "HEAD"]).await?;
        self.hide_task_file().await
    }

    /// Rebuilds the index's cache of directory trees. Each commit invalidates the directories that it changed, and git
    /// then compares them file by file: after a few hundred commits `git status` takes twice as long.
    pub async fn refresh_index(&self) -> Result<(), ScmError> {
        match self.git(&["write-tree"]).await {
            // An index with conflicts has no tree cache.
            Ok(_) | Err(ScmError::Git { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the lock files of killed git processes. Call it only when no process of the agent is left.
    pub async fn remove_locks(&self) -> Result<(), ScmError> {
        let git = self.dir.join(".git");
        let found = self.sandbox.files().list(&git).await?;
        let locks = found
            .iter()
            .map(|entry| entry.name.as_str())
            .filter(|name| Path::new(name).extension().is_some_and(|end| end == "lock"));
        for name in locks.chain([&*format!("refs/heads/{}.lock", self.start.branch)]) {
            self.sandbox.files().remove(&git.join(name)).await?;
        }
        Ok(())
    }

    /// Its directory inside the sandbox.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A git command in the clone. `args` are separated by spaces.
    pub(super) fn command(&self, args: &str) -> Command {
        self.git_with(&[]).args(args.split(' '))
    }

    /// Git in the clone, with these options before the subcommand.
    fn git_with(&self, options: &[&str]) -> Command {
        let trusted = format!("safe.directory={}", self.dir.display());
        hardened(&["-c", &trusted])
            .args(options.iter().copied())
            .cwd(&self.dir)
    }

    /// Runs a command in the sandbox and returns its output. Its failure is an error.
    pub(super) async fn run(&self, command: &Command) -> Result<Vec<u8>, ScmError> {
        output(command, &self.sandbox.exec(command, &mut Discard).await?)
    }

    /// Runs git in the clone and returns its output.
    pub(super) async fn git(&self, args: &[&str]) -> Result<Vec<u8>, ScmError> {
        self.run(&self.command(args[0]).args(args[1..].iter().copied()))
            .await
    }

    async fn init(&self) -> Result<(), ScmError> {
        let format = format!("--object-format={}", self.start.format.name());
        let branch = format!("--initial-branch={}", self.start.branch);
        let dir = self.dir.to_str().ok_or_else(|| {
            SandboxError::file("name", &self.dir, std::io::ErrorKind::InvalidFilename.into())
        })?;
        let command = hardened(&[]).args(["init", "--quiet", "--template=", &format, &branch, "--", dir]);
        self.run(&command).await?;
        let config = self.dir.join(".git/config");
        self.sandbox
            .files()
            .append(&config, self.config().as_bytes())
            .await?;
        let exclude = self.dir.join(".git/info/exclude");
        self.sandbox
            .files()
            .write(&exclude, EXCLUDE.as_bytes(), 0o644)
            .await?;
        Ok(())
    }

    /// Only the runner edits the task file. If the project tracks it, git ignores changes to it.
    async fn hide_task_file(&self) -> Result<(), ScmError> {
        if !self.git(&["ls-files", "-z", "--", TASK_FILE]).await?.is_empty() {
            self.git(&["update-index", "--skip-worktree", "--", TASK_FILE])
                .await?;
        }
        Ok(())
    }

    /// Nothing is synced to disk: a clone that a power failure damages is created again from the host's objects.
    fn config(&self) -> String {
        let CommitIdentity { name, email } = &self.start.identity;
        format!(
            "[user]\n\tname = \"{name}\"\n\temail = \"{email}\"\n\
             [core]\n\tuntrackedCache = true\n\tfsync = none\n\tlogAllRefUpdates = true\n[status]\n\tshowUntrackedFiles = all\n\
             [index]\n\tversion = 4\n\tskipHash = true\n\
             [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[commit]\n\tgpgSign = false\n[advice]\n\tdetachedHead = false\n"
        )
    }
}

/// Variables that make the agent's git trust the clone, whichever user owns its files.
#[must_use]
pub fn trust_variables(clone_dir: &Path) -> [(String, String); 3] {
    [
        ("GIT_CONFIG_COUNT".to_owned(), "1".to_owned()),
        ("GIT_CONFIG_KEY_0".to_owned(), "safe.directory".to_owned()),
        ("GIT_CONFIG_VALUE_0".to_owned(), clone_dir.display().to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", "a@b")]
    #[case("a", " ")]
    #[case("a\nb", "a@b")]
    #[case("a <b>", "a@b")]
    #[case("a\"", "a@b")]
    fn an_identity_cannot_break_a_commit(#[case] name: &str, #[case] email: &str) {
        assert!(CommitIdentity::new(name, email).is_err());
    }
}
