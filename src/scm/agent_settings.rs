//! Agent settings in a repository. They can make an agent run programs.

use std::collections::BTreeSet;

use super::error::ScmError;
use super::git::records;
use super::path::RepoPath;
use super::repository::Repository;
use crate::agent::AGENTS;
use crate::id::ObjectId;

/// The agent settings in a commit of the user's repository.
pub async fn agent_settings(repository: &Repository, commit: &ObjectId) -> Result<Vec<RepoPath>, ScmError> {
    let files: BTreeSet<&str> = AGENTS
        .iter()
        .flat_map(|agent| agent.settings_files.iter().copied())
        .collect();
    let git = &repository.git;
    let command = git
        .command("ls-tree -r -z --name-only --full-tree")
        .args([commit.as_str(), "--"])
        .args(files);
    let printed = git.run(&command).await?;
    Ok(records(&printed).map(RepoPath::new).collect())
}
