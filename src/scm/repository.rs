//! The user's repository on the host.

use std::path::{Path, PathBuf};

use super::error::{Incomplete, ScmError};
use super::git::{GitDir, hardened, message, on_host, one_id, output, unexpected};
use super::objects;
use crate::exec::{Command, Host};
use crate::id::{ObjectId, RunId};

/// The user's repository on the host: a normal one, a worktree or a bare one.
///
/// Nothing here touches a working directory, an index, `HEAD` or, but for [`Repository::update_ref`], a branch.
#[derive(Clone, Debug)]
pub struct Repository {
    pub(super) git: GitDir,
    common_dir: PathBuf,
    format: ObjectFormat,
}

/// How a repository names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFormat {
    /// SHA-1: 40 digits.
    Sha1,
    /// SHA-256: 64 digits.
    Sha256,
}

impl ObjectFormat {
    /// The name git has for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// How many bytes an id has.
    pub(super) fn id_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The id that stands for "no object".
    pub(super) fn zero(self) -> String {
        "0".repeat(self.id_bytes() * 2)
    }
}

/// Where a ref must be for it to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect<'a> {
    /// Nowhere: it does not exist.
    Absent,
    /// At this object.
    Is(&'a ObjectId),
}

impl<'a> Expect<'a> {
    /// What an earlier [`Repository::read_ref`] found.
    #[must_use]
    pub fn from_found(found: Option<&'a ObjectId>) -> Self {
        found.map_or(Self::Absent, Self::Is)
    }

    fn id(self) -> Option<&'a ObjectId> {
        match self {
            Self::Absent => None,
            Self::Is(id) => Some(id),
        }
    }
}

/// Something in a commit that a run's clone does not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// It has submodules; their directories stay empty in a run's clone.
    Submodules,
    /// It has files kept by Git LFS; a run's clone holds their pointers.
    LfsPointers,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Submodules => "the repository has submodules; their directories are empty in a run's clone",
            Self::LfsPointers => {
                "the repository uses Git LFS; a run's clone holds the pointers, not the files"
            }
        })
    }
}

impl Repository {
    /// Finds the repository that `path` is in, and makes sure that it is complete.
    pub async fn open(host: Host, path: &Path) -> Result<Self, ScmError> {
        let command = hardened(&["--no-optional-locks"]).cwd(path).args([
            "rev-parse",
            "--path-format=absolute",
            "--git-dir",
            "--git-common-dir",
            "--is-shallow-repository",
            "--show-object-format",
        ]);
        let exit = on_host(&host, &command).await?;
        if !exit.success() {
            return Err(ScmError::NotARepository {
                path: path.to_owned(),
                reason: message(&exit),
            });
        }
        let printed = output(&command, &exit)?;
        let mut lines = printed.split(|byte| *byte == b'\n');
        let mut line = || lines.next().unwrap_or_default();
        let (git_dir, common_dir) = (path_of(line()), path_of(line()));
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
        };
        let kind = if shallow {
            Some(Incomplete::Shallow)
        } else {
            repository.is_partial().await?.then_some(Incomplete::Partial)
        };
        match kind {
            Some(kind) => Err(ScmError::Incomplete {
                path: path.to_owned(),
                kind,
            }),
            None => Ok(repository),
        }
    }

    /// How it names its objects.
    #[must_use]
    pub fn object_format(&self) -> ObjectFormat {
        self.format
    }

    /// The directory that all its worktrees share.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// The commit that a branch, a tag or another revision names.
    pub async fn resolve(&self, revision: &str) -> Result<ObjectId, ScmError> {
        self.rev_parse(&format!("{revision}^{{commit}}"))
            .await?
            .ok_or_else(|| ScmError::UnknownRevision(revision.to_owned()))
    }

    /// The branch that is checked out, without `refs/heads/`; `None` when `HEAD` is detached.
    pub async fn head_branch(&self) -> Result<Option<String>, ScmError> {
        let command = self
            .git
            .command()
            .args(["symbolic-ref", "--quiet", "--short", "HEAD"]);
        let exit = self.git.exit(&command).await?;
        if exit.status == crate::exec::ExitStatus::Code(1) {
            return Ok(None);
        }
        let printed = output(&command, &exit)?;
        Ok(Some(String::from_utf8_lossy(&printed).trim_end().to_owned()))
    }

    /// Where a ref is; `name` is its full name.
    pub async fn read_ref(&self, name: &str) -> Result<Option<ObjectId>, ScmError> {
        self.rev_parse(name).await
    }

    /// Moves or makes a ref if it is where it is expected, else [`ScmError::RefMoved`].
    pub async fn update_ref(&self, name: &str, new: &ObjectId, expected: Expect<'_>) -> Result<(), ScmError> {
        let old = expected
            .id()
            .map_or_else(|| self.format.zero(), ToString::to_string);
        self.change_ref(name, format!("update {name}\0{new}\0{old}\0"), expected)
            .await
    }

    /// Deletes a ref if it is where it is expected; one that is gone already is fine.
    pub async fn delete_ref(&self, name: &str, expected: &ObjectId) -> Result<(), ScmError> {
        let deleted = self
            .change_ref(name, format!("delete {name}\0{expected}\0"), Expect::Is(expected))
            .await;
        match deleted {
            Err(ScmError::RefMoved { found: None, .. }) => Ok(()),
            other => other,
        }
    }

    /// Keeps the commit a run starts from safe from garbage collection.
    pub async fn pin_base(&self, run: &RunId, commit: &ObjectId) -> Result<(), ScmError> {
        let name = format!("refs/ralph/{run}/base");
        match self.read_ref(&name).await? {
            Some(found) if found == *commit => Ok(()),
            found => {
                self.update_ref(&name, commit, Expect::from_found(found.as_ref()))
                    .await
            }
        }
    }

    /// What a run's clone of this commit will not carry, judged by the files at the top of its tree.
    pub async fn warnings(&self, commit: &ObjectId) -> Result<Vec<Warning>, ScmError> {
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
        warnings.extend(modules.is_some().then_some(Warning::Submodules));
        warnings.extend(uses_lfs.then_some(Warning::LfsPointers));
        Ok(warnings)
    }

    async fn change_ref(&self, name: &str, line: String, expected: Expect<'_>) -> Result<(), ScmError> {
        let command = self
            .git
            .command()
            .args(["update-ref", "--stdin", "-z"])
            .stdin(line);
        let Err(failed) = self.git.run(&command).await else {
            return Ok(());
        };
        let found = self.read_ref(name).await?;
        if found.as_ref() == expected.id() {
            return Err(failed);
        }
        Err(ScmError::RefMoved {
            name: name.to_owned(),
            expected: expected.id().cloned(),
            found,
        })
    }

    async fn rev_parse(&self, name: &str) -> Result<Option<ObjectId>, ScmError> {
        let command = self
            .git
            .command()
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options", name]);
        let exit = self.git.exit(&command).await?;
        if !exit.success() {
            return Ok(None);
        }
        one_id(&output(&command, &exit)?).map(Some)
    }

    async fn is_partial(&self) -> Result<bool, ScmError> {
        let command = self.promisor_query();
        let exit = self.git.exit(&command).await?;
        Ok(exit.success())
    }

    fn promisor_query(&self) -> Command {
        let names = r"^(extensions\.partialclone|remote\..*\.promisor)$";
        self.git
            .command()
            .args(["config", "--local", "--name-only", "--get-regexp", names])
    }
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}
