//! Settings of agents that a repository brings along: they decide what an agent runs besides what it is told.

use super::error::ScmError;
use super::path::RepoPath;
use super::repository::Repository;
use crate::id::ObjectId;

/// Where agents look for settings, servers of tools, hooks and instructions, at the top of a repository.
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

/// The settings of agents that a commit of the user's repository holds.
pub async fn agent_settings(repository: &Repository, commit: &ObjectId) -> Result<Vec<RepoPath>, ScmError> {
    let git = &repository.git;
    let command = git
        .command()
        .args([
            "ls-tree",
            "-r",
            "-z",
            "--name-only",
            "--full-tree",
            commit.as_str(),
            "--",
        ])
        .args(PLACES);
    let printed = git.run(&command).await?;
    let paths = printed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(RepoPath::new).collect())
}
