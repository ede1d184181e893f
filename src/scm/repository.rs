//! The user's repository on the host.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use super::error::ScmError;
use super::git::{
    GitDir, hardened, message, one_id, output, records, run_on_host, unexpected, uninterrupted,
};
use super::import::{FAST_IMPORT, FastImport, read_mark};
use super::objects;
use super::path::{RepoPath, collision};
use crate::exec::{Command, ExitStatus, Host};
use crate::id::{ObjectId, RunId};

/// The beginnings of the refs that only ralph writes.
const OWN_REFS: [&str; 2] = ["refs/ralph/", "refs/notes/ralph-"];

/// From what age on the lock file of such a ref is that of a killed process.
const DEAD_LOCK: Duration = Duration::from_secs(30);

/// The user's repository on the host: a normal one, a worktree or a bare one.
///
/// Its methods never change a working directory, an index or `HEAD`. Only [`Repository::update_ref`] changes a branch.
#[derive(Clone, Debug)]
pub struct Repository {
    pub(super) git: GitDir,
    common_dir: PathBuf,
    format: ObjectFormat,
    /// Where temporary files go; by default the directory of the system.
    scratch: Option<PathBuf>,
}

/// The hash function of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFormat {
    /// SHA-1: ids of 40 hex digits.
    Sha1,
    /// SHA-256: ids of 64 hex digits.
    Sha256,
}

impl ObjectFormat {
    /// Git's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// The length of an id in bytes.
    pub(super) fn id_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The tree without files. Git knows it without an object.
    pub(super) fn empty_tree(self) -> &'static str {
        match self {
            Self::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            Self::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        }
    }

    /// The id that stands for "no object".
    pub(super) fn zero(self) -> String {
        "0".repeat(self.id_bytes() * 2)
    }
}

/// The lines of `rev-parse` in [`Repository::open`]. There are more if a path has a line break in it.
const LAYOUT_LINES: usize = 4;

impl Repository {
    /// Puts temporary files into this directory, whose owner removes those of a process that was killed.
    #[must_use]
    pub fn with_scratch(self, dir: &Path) -> Self {
        Self {
            scratch: Some(dir.to_owned()),
            ..self
        }
    }

    /// Creates a commit without a ref.
    pub(super) async fn import(&self, import: FastImport<'_>) -> Result<ObjectId, ScmError> {
        // Each process has its own file for the id of the commit, so that two processes cannot confuse their commits. It is
        // not in the user's repository, where a killed process would leave it behind.
        let dir = match &self.scratch {
            Some(parent) => tempfile::tempdir_in(parent)
                .map_err(ScmError::file("create a temporary directory in", parent)),
            None => tempfile::tempdir().map_err(ScmError::file("create", Path::new("temporary directory"))),
        }?;
        let marks = dir.path().join("commit");
        let command = import.finish_silently(self.git.command(FAST_IMPORT), self.format, &marks);
        let git = self.git.clone();
        uninterrupted(async move {
            git.run(&command).await?;
            let id = read_mark(&std::fs::read(&marks).map_err(ScmError::file("read", &marks))?);
            drop(dir);
            id
        })
        .await
    }

    /// Opens the repository that contains `path`, and checks that its history is complete.
    pub async fn open(host: Host, path: &Path) -> Result<Self, ScmError> {
        let layout = "--git-dir --git-common-dir --is-shallow-repository --show-object-format";
        let command = hardened(&["--no-optional-locks", "rev-parse", "--path-format=absolute"])
            .cwd(path)
            .args(layout.split(' '));
        let no_repository = |reason| ScmError::NotARepository {
            path: path.to_owned(),
            reason,
        };
        let exit = match run_on_host(&host, &command).await {
            Err(ScmError::Start(_)) if !path.is_dir() => {
                return Err(no_repository("there is no such directory".to_owned()));
            }
            other => other?,
        };
        if !exit.success() {
            return Err(no_repository(message(&exit)));
        }
        let printed = output(&command, &exit)?;
        let mut lines = printed.split(|byte| *byte == b'\n');
        let mut line = || lines.next().unwrap_or_default();
        if printed.split(|byte| *byte == b'\n').count() > LAYOUT_LINES + 1 {
            return Err(ScmError::UnusablePath(path.to_owned()));
        }
        let (git_dir, common_dir) = (path_of(line()), path_of(line()));
        if common_dir.to_str().is_none() || git_dir.to_str().is_none() {
            return Err(ScmError::UnusablePath(path.to_owned()));
        }
        let shallow = line() == b"true";
        let format = match line() {
            b"sha1" => ObjectFormat::Sha1,
            b"sha256" => ObjectFormat::Sha256,
            _ => return Err(unexpected("a repository's layout", &printed)),
        };
        let repository = Self {
            git: GitDir::new(host, git_dir),
            common_dir,
            format,
            scratch: None,
        };
        let (kind, hint) = if shallow {
            ("shallow clone", "fetch the rest with `git fetch --unshallow`")
        } else if repository.is_partial().await? {
            (
                "partial clone",
                "fetch the rest with `git fetch --refetch --no-filter`, then unset `remote.<name>.promisor`",
            )
        } else {
            return Ok(repository);
        };
        Err(ScmError::Incomplete {
            path: path.to_owned(),
            kind,
            hint,
        })
    }

    /// The bare repository in this directory, with the same hash function on the same host.
    pub(super) fn at(&self, dir: &Path) -> Self {
        Self {
            git: self.git.with_path(dir.to_owned()),
            common_dir: dir.to_owned(),
            format: self.format,
            scratch: self.scratch.clone(),
        }
    }

    /// The same repository, with git started by another host handle.
    pub(super) fn with_host(&self, host: Host) -> Self {
        Self {
            git: self.git.with_host(host),
            ..self.clone()
        }
    }

    /// Whether this error is that of a git command on this repository, for example because its disk is full.
    pub(crate) fn is_source_of(&self, error: &ScmError) -> bool {
        matches!(error, ScmError::Git { dir, .. } if *dir == self.git.path)
    }

    /// Its hash function.
    #[must_use]
    pub fn object_format(&self) -> ObjectFormat {
        self.format
    }

    /// Fails if this user cannot write refs, which every run needs.
    pub fn check_writable(&self) -> Result<(), ScmError> {
        let refs = self.common_dir.join("refs");
        rustix::fs::access(&refs, rustix::fs::Access::WRITE_OK).map_err(|error| ScmError::NotWritable {
            path: self.common_dir.clone(),
            source: error.into(),
        })
    }

    /// The git directory that all its worktrees share.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// Two files or directories of a commit that are one on a file system that ignores case or normalises Unicode.
    pub async fn colliding_names(&self, commit: &ObjectId) -> Result<Option<(RepoPath, RepoPath)>, ScmError> {
        let command = self.git.command("ls-tree -r -t -z --name-only --full-tree");
        let printed = self.git.run(&command.arg(commit.as_str())).await?;
        let paths: Vec<Vec<u8>> = records(&printed).map(<[u8]>::to_vec).collect();
        let all = paths.iter().map(Vec::as_slice).collect();
        let found = collision(&paths, &all);
        Ok(found.map(|(one, other)| (RepoPath::new(one), RepoPath::new(other))))
    }

    /// Creates an object store that also reads this repository's objects.
    pub(super) fn borrow_objects(&self, objects: &Path) -> io::Result<()> {
        fs::create_dir_all(objects.join("info"))?;
        fs::create_dir_all(objects.join("pack"))?;
        let alternate = self.common_dir.join("objects");
        fs::write(
            objects.join("info/alternates"),
            format!("{}\n", alternate.display()),
        )
    }

    /// The commit of a branch, tag or other revision.
    pub async fn resolve(&self, revision: &str) -> Result<ObjectId, ScmError> {
        self.read_ref(&format!("{revision}^{{commit}}"))
            .await?
            .ok_or_else(|| ScmError::UnknownRevision(revision.to_owned()))
    }

    /// The commit of a branch of this repository, else of its remote `origin` as it was fetched last.
    pub async fn resolve_branch(&self, branch: &str) -> Result<ObjectId, ScmError> {
        match self.resolve(branch).await {
            Err(ScmError::UnknownRevision(_)) => {
                let fetched = format!("refs/remotes/origin/{branch}^{{commit}}");
                let found = self.read_ref(&fetched).await?;
                found.ok_or_else(|| ScmError::UnknownRevision(branch.to_owned()))
            }
            found => found,
        }
    }

    /// The branch that is checked out, without `refs/heads/`. `None` if `HEAD` is detached.
    pub async fn head_branch(&self) -> Result<Option<String>, ScmError> {
        let command = self.git.command("symbolic-ref --quiet --short HEAD");
        let exit = self.git.exit(&command).await?;
        if exit.status == ExitStatus::Code(1) {
            return Ok(None);
        }
        let printed = output(&command, &exit)?;
        Ok(Some(String::from_utf8_lossy(&printed).trim_end().to_owned()))
    }

    /// The object of a ref. `name` is its full name.
    pub async fn read_ref(&self, name: &str) -> Result<Option<ObjectId>, ScmError> {
        let command = self
            .git
            .command("rev-parse --verify --quiet --end-of-options")
            .arg(name);
        let exit = self.git.exit(&command).await?;
        // With `--quiet` git says nothing about what does not exist. It exits with 128 if a reflog is too short.
        let is_silent = exit.status == ExitStatus::Code(128) && exit.stderr.total() == 0;
        if exit.status == ExitStatus::Code(1) || is_silent {
            return Ok(None);
        }
        one_id(&output(&command, &exit)?).map(Some)
    }

    /// Moves or creates a ref by compare-and-swap. `expected` is its current object; `None` means that it must not exist.
    /// Returns [`ScmError::RefMoved`] if it is elsewhere.
    pub async fn update_ref(
        &self,
        name: &str,
        new: &ObjectId,
        expected: Option<&ObjectId>,
    ) -> Result<(), ScmError> {
        let old = expected.map_or_else(|| self.format.zero(), ToString::to_string);
        let command = self
            .git
            .command("update-ref --stdin -z")
            .stdin(format!("update {name}\0{new}\0{old}\0"));
        let Err(failed) = self.change_ref(name, &command).await else {
            return Ok(());
        };
        let found = self.read_ref(name).await?;
        if found.as_ref() == expected {
            return Err(failed);
        }
        Err(ScmError::RefMoved {
            name: name.to_owned(),
            expected: expected.cloned(),
            found,
        })
    }

    /// Runs a command that changes this ref, once more if the lock of a killed git was in its way.
    async fn change_ref(&self, name: &str, command: &Command) -> Result<(), ScmError> {
        let run = || {
            let (git, command) = (self.git.clone(), command.clone());
            // A git that is killed leaves its lock, and another one for all refs when it deletes.
            uninterrupted(async move { git.run(&command).await.map(drop) })
        };
        match run().await {
            Err(_) if self.remove_dead_lock(name) => run().await,
            done => done,
        }
    }

    /// Removes the lock file that a killed git left for a ref which only ralph writes. Git has it for milliseconds; one that stays
    /// would fail every run of the repository. Returns whether it removed one.
    fn remove_dead_lock(&self, name: &str) -> bool {
        let is_own = OWN_REFS.iter().any(|own| name.starts_with(own));
        let lock = self.common_dir.join(format!("{name}.lock"));
        let age = || {
            // By the clock of the file system, which may be on another host.
            let now = tempfile::tempfile_in(&self.common_dir)?.metadata()?.modified()?;
            let made = fs::metadata(&lock)?.modified()?;
            now.duration_since(made).map_err(io::Error::other)
        };
        is_own && age().is_ok_and(|age| age > DEAD_LOCK) && fs::remove_file(&lock).is_ok()
    }

    /// Removes every ref that ralph keeps for a run. Branches stay.
    pub async fn remove_run_refs(&self, run: &RunId) -> Result<(), ScmError> {
        let listing = self
            .git
            .command("for-each-ref --format=%(refname)")
            .arg(format!("refs/ralph/{run}/"));
        let printed = self.git.run(&listing).await?;
        for name in String::from_utf8_lossy(&printed).lines() {
            self.delete_ref(name).await?;
        }
        Ok(())
    }

    /// Deletes a ref, wherever it is. One that does not exist is no error.
    pub(super) async fn delete_ref(&self, name: &str) -> Result<(), ScmError> {
        let command = self.git.command("update-ref --no-deref -d").arg(name);
        self.change_ref(name, &command).await
    }

    /// Protects the commit that a run starts from against garbage collection.
    pub async fn pin_base(&self, run: &RunId, commit: &ObjectId) -> Result<(), ScmError> {
        let name = format!("refs/ralph/{run}/base");
        match self.read_ref(&name).await? {
            Some(found) if found == *commit => Ok(()),
            found => self.update_ref(&name, commit, found.as_ref()).await,
        }
    }

    /// Warnings for people about what a run's clone of this commit will not contain, by the files in its root directory.
    pub async fn warnings(&self, commit: &ObjectId) -> Result<Vec<&'static str>, ScmError> {
        let names = [
            format!("{commit}:.gitmodules"),
            format!("{commit}:.gitattributes"),
        ];
        let found = objects::read(&self.git, &names).await?;
        let [modules, attributes] = found.as_slice() else {
            return Ok(Vec::new());
        };
        let uses_lfs = attributes
            .as_ref()
            .is_some_and(|file| String::from_utf8_lossy(&file.bytes).contains("filter=lfs"));
        let mut warnings = Vec::new();
        if modules.is_some() {
            warnings.push("the repository has submodules; their directories are empty in a run's clone");
        }
        if uses_lfs {
            warnings.push("the repository uses Git LFS; a run's clone contains the pointers, not the files");
        }
        Ok(warnings)
    }

    /// Those of these paths that a commit has.
    pub async fn tracked<'p>(
        &self,
        commit: &ObjectId,
        paths: impl IntoIterator<Item = &'p str>,
    ) -> Result<Vec<RepoPath>, ScmError> {
        let command = self
            .git
            .command("ls-tree -r -z --name-only --full-tree")
            .args([commit.as_str(), "--"])
            .args(paths);
        let printed = self.git.run(&command).await?;
        Ok(records(&printed).map(RepoPath::new).collect())
    }

    /// The entries of a commit's tree at paths that are wanted, as git prints them: mode, type, hash and path.
    pub(crate) async fn entries(
        &self,
        commit: &ObjectId,
        is_wanted: impl Fn(&RepoPath) -> bool,
    ) -> Result<Vec<Vec<u8>>, ScmError> {
        let command = self.git.command("ls-tree -r -z --full-tree").arg(commit.as_str());
        let printed = self.git.run(&command).await?;
        let is_wanted = |entry: &&[u8]| {
            let path = entry.splitn(2, |byte| *byte == b'\t').nth(1);
            path.is_some_and(|path| is_wanted(&RepoPath::new(path)))
        };
        Ok(records(&printed).filter(is_wanted).map(<[u8]>::to_vec).collect())
    }

    /// Whether a commit is another one or one of its ancestors.
    pub(super) async fn is_ancestor(&self, ancestor: &ObjectId, commit: &str) -> Result<bool, ScmError> {
        let command = self
            .git
            .command("merge-base --is-ancestor")
            .args([ancestor.as_str(), commit]);
        let exit = self.git.exit(&command).await?;
        if exit.status == ExitStatus::Code(1) {
            return Ok(false);
        }
        output(&command, &exit).map(|_| true)
    }

    async fn is_partial(&self) -> Result<bool, ScmError> {
        let names = r"^(extensions\.partialclone|remote\..*\.promisor)$";
        let command = self
            .git
            .command("config --local --name-only --get-regexp")
            .arg(names);
        let exit = self.git.exit(&command).await?;
        if exit.status == ExitStatus::Code(1) {
            return Ok(false);
        }
        output(&command, &exit).map(|_| true)
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}
