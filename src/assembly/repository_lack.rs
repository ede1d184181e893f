//! What a run would lack in the repository of a directory: it starts from a commit.

use std::path::Path;

use crate::exec::Host;
use crate::scm::{Repository, ScmError};
use crate::text::{error_chain, one_line, shell_word};

/// What a run lacks in a repository.
pub(crate) enum RepositoryLack {
    /// A commit, or a repository at all, and the shell commands that make it.
    Commit { lack: &'static str, commands: String },
    /// A repository that it can use.
    Usable {
        reason: String,
        hint: Option<&'static str>,
    },
}

impl RepositoryLack {
    /// Looks at the repository of `dir`. The commands name the directory as it is given by `named`.
    pub(crate) async fn find(host: &Host, dir: &Path, named: Option<&Path>) -> Option<Self> {
        let begun = match Repository::open(host.clone(), dir).await {
            Ok(repository) => repository.resolve("HEAD").await.map(drop),
            Err(error) => Err(error),
        };
        let git = named.map_or("git".to_owned(), |dir| {
            format!("git -C {}", shell_word(&dir.to_string_lossy()))
        });
        let commit = format!("{git} add --all && {git} commit -m Begin");
        match begun {
            Ok(()) => None,
            Err(ScmError::NotARepository { .. }) if !has_git_dir(dir) => Some(Self::Commit {
                lack: "this is not a git repository, and a run starts from a commit",
                commands: format!("{git} init && {commit}"),
            }),
            Err(ScmError::UnknownRevision(_)) => Some(Self::Commit {
                lack: "this repository has no commit yet, and a run starts from one",
                commands: commit,
            }),
            Err(error) => Some(Self::Usable {
                reason: one_line(&error_chain(&error)),
                hint: match &error {
                    // Its hint is to create a repository, and there is one.
                    ScmError::NotARepository { .. } => None,
                    error => error.hint(),
                },
            }),
        }
    }
}

/// Whether this directory or one above it has a repository, even one that git cannot open.
fn has_git_dir(dir: &Path) -> bool {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    dir.ancestors().any(|dir| dir.join(".git").exists())
}
