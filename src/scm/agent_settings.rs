//! Agent settings in a repository. They can make an agent run programs.

use super::error::ScmError;
use super::path::RepoPath;
use super::repository::Repository;
use crate::id::ObjectId;

/// Where agents look for settings, tool servers, hooks and instructions, in the root of a repository.
const PLACES: [&str; 8] = [
    ".claude",
    ".codex",
    ".cursor",
    ".cursorrules",
    ".mcp.json",
    "AGENTS.md",
    "CLAUDE.local.md",
    "CLAUDE.md",
];

/// The agent settings in a commit of the user's repository.
pub async fn agent_settings(repository: &Repository, commit: &ObjectId) -> Result<Vec<RepoPath>, ScmError> {
    let git = &repository.git;
    let command = git
        .command("ls-tree -r -z --name-only --full-tree")
        .args([commit.as_str(), "--"])
        .args(PLACES);
    let printed = git.run(&command).await?;
    let paths = printed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(RepoPath::new).collect())
}
