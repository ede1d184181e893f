//! The forge without a server: a branch in the user's repository, and a file with the pull request.

use std::path::PathBuf;

use async_trait::async_trait;

use super::error::ScmError;
use super::forge::{Forge, ForgeError, OpenedPullRequest, PullRequest};
use super::repository::Repository;
use crate::atomic_file::{FileAccess, write_durably};
use crate::id::ObjectId;

/// A pull request as a branch in the user's repository and a Markdown file outside of its working directory.
#[derive(Clone, Debug)]
pub struct LocalForge {
    repository: Repository,
    file: PathBuf,
}

impl LocalForge {
    /// Opens pull requests in this repository and describes them in this file.
    #[must_use]
    pub fn new(repository: Repository, file: PathBuf) -> Self {
        Self { repository, file }
    }

    /// Moves the branch to the commit of the pull request.
    async fn move_branch(&self, request: &PullRequest) -> Result<(), ForgeError> {
        let name = ref_name(&request.branch);
        let found = self.repository.read_ref(&name).await?;
        if found.as_ref() == Some(&request.commit) {
            return Ok(());
        }
        if let Some(found) = found.as_ref().filter(|found| !request.ours.contains(found)) {
            return Err(ForgeError::Scm(ScmError::RefMoved {
                name,
                expected: request.ours.last().cloned(),
                found: Some(found.clone()),
            }));
        }
        if let Some(worktree) = self.checked_out_in(&name).await? {
            return Err(ForgeError::CheckedOut {
                branch: request.branch.clone(),
                worktree,
            });
        }
        self.repository
            .update_ref(&name, &request.commit, found.as_ref())
            .await?;
        Ok(())
    }

    async fn checked_out_in(&self, name: &str) -> Result<Option<PathBuf>, ScmError> {
        let git = &self.repository.git;
        let printed = git.run(&git.command("worktree list --porcelain -z")).await?;
        let text = String::from_utf8_lossy(&printed);
        let mut worktree = "";
        for line in text.split('\0') {
            if let Some(path) = line.strip_prefix("worktree ") {
                worktree = path;
            } else if line.strip_prefix("branch ") == Some(name) {
                return Ok(Some(worktree.into()));
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl Forge for LocalForge {
    async fn open(&self, request: &PullRequest) -> Result<OpenedPullRequest, ForgeError> {
        self.move_branch(request).await?;
        let text = describe(request);
        write_durably(&self.file, text.as_bytes(), FileAccess::Private)
            .map_err(ScmError::file("write the pull request to", &self.file))?;
        Ok(OpenedPullRequest {
            location: self.file.display().to_string(),
            is_pull_request: true,
            warnings: Vec::new(),
        })
    }

    async fn is_at(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        let found = self.repository.read_ref(&ref_name(branch)).await?;
        Ok(found.as_ref() == Some(commit))
    }
}

fn ref_name(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

fn describe(request: &PullRequest) -> String {
    let state = if request.draft {
        "draft"
    } else {
        "ready for review"
    };
    let labels = match request.labels.as_slice() {
        [] => String::new(),
        labels => format!("- Labels: {}\n", labels.join(", ")),
    };
    format!(
        "# {}\n\n- Branch: `{}` into `{}`\n- Commit: `{}`\n- State: {state}\n{labels}\n{}\n",
        request.title.trim(),
        request.branch,
        request.base_branch,
        request.commit,
        request.body.trim_end(),
    )
}
