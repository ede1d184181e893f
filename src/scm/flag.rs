//! What can make programs run later: changes that a person has to check before merging, and settings of agents.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use super::entry::{GITLINK, SYMLINK, TreeChange, TreeEntry};
use super::error::ScmError;
use super::history::changes_between;
use super::objects;
use super::path::RepoPath;
use super::repository::Repository;
use crate::agent::AGENTS;
use crate::id::ObjectId;

/// Files and directories, by path, that decide what runs later. Settings files of agents are in their records.
const POLICY_PATHS: [&str; 18] = [
    "ralph.toml",
    "ralph_task.md",
    ".ralph",
    ".agent-loop",
    "flake.nix",
    "flake.lock",
    ".gitlab-ci.yml",
    ".circleci",
    ".travis.yml",
    "azure-pipelines.yml",
    "Jenkinsfile",
    ".vscode",
    ".envrc",
    // The presets `packages:*` allow the hosts that these name.
    ".npmrc",
    "pip.conf",
    "requirements.txt",
    ".cargo",
    "nix.conf",
];

/// The directory of a repository with the public keys of hosts whose signed evidence counts.
pub const EVIDENCE_KEYS_DIR: &str = ".ralph-evidence-keys";

/// A change that a person has to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeFlag {
    /// The path.
    pub path: RepoPath,
    /// Why, for people.
    pub reason: String,
}

impl fmt::Display for ChangeFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.path, self.reason)
    }
}

/// Flags the changes between two commits of the user's repository.
pub async fn flags_between(
    repository: &Repository,
    from: &ObjectId,
    to: &ObjectId,
) -> Result<Vec<ChangeFlag>, ScmError> {
    let changes = changes_between(&repository.git, from, to).await?;
    let links: Vec<String> = changes
        .iter()
        .filter_map(new_link)
        .map(|entry| entry.id.to_string())
        .collect();
    let mut targets = objects::read(&repository.git, &links).await?.into_iter();
    let mut flags = Vec::new();
    for change in &changes {
        let target = new_link(change).and_then(|_| targets.next()).flatten();
        let target = target.map(|object| String::from_utf8_lossy(&object.bytes).into_owned());
        flags.extend(reasons(change, target).into_iter().map(|reason| ChangeFlag {
            path: change.path.clone(),
            reason,
        }));
    }
    Ok(flags)
}

/// The agent settings in a commit of the user's repository.
pub async fn agent_settings(repository: &Repository, commit: &ObjectId) -> Result<Vec<RepoPath>, ScmError> {
    let files: BTreeSet<&str> = AGENTS
        .iter()
        .flat_map(|agent| agent.settings_files.iter().copied())
        .collect();
    repository.tracked(commit, files).await
}

fn reasons(change: &TreeChange, target: Option<String>) -> Vec<String> {
    let mut reasons = Vec::new();
    if is_policy_file(&change.path) {
        reasons.push("decides what runs later".to_owned());
    }
    if change.path.components().next() == Some(EVIDENCE_KEYS_DIR.as_bytes()) {
        reasons.push("decides whose signatures on evidence count".to_owned());
    }
    if let Some(target) = target {
        let link = if leaves(&change.path, &target) {
            "a link out of the repository, to"
        } else {
            "a link to"
        };
        // As a path, because that escapes what could confuse a reader.
        reasons.push(format!("{link} `{}`", RepoPath::new(target)));
    }
    let mode = |entry: &Option<TreeEntry>| entry.as_ref().map(|entry| entry.mode);
    let (before, after) = (mode(&change.before), mode(&change.after));
    if before == Some(GITLINK) || after == Some(GITLINK) {
        reasons.push("a submodule commit".to_owned());
    }
    if let (Some(from), Some(to)) = (before, after)
        && from != to
    {
        reasons.push(format!("mode changed from {from:o} to {to:o}"));
    }
    reasons
}

fn is_policy_file(path: &RepoPath) -> bool {
    let text = String::from_utf8_lossy(path.as_bytes()).to_lowercase();
    let name = text.rsplit('/').next().unwrap_or(&text);
    let under = |policy: &str| {
        text.strip_prefix(policy)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    text.split('/').any(|component| component.starts_with(".git"))
        || POLICY_PATHS.iter().any(|policy| under(&policy.to_lowercase()))
        || AGENTS
            .iter()
            .flat_map(|agent| agent.settings_files)
            .any(|setting| {
                // A file with an extension, such as `AGENTS.md`, is read in every directory.
                let anywhere = Path::new(setting).extension().is_some();
                under(&setting.to_lowercase()) || (anywhere && name == setting.to_lowercase())
            })
}

/// Whether a link at `path` leads out of the repository or into a git directory.
fn leaves(path: &RepoPath, target: &str) -> bool {
    if target.starts_with('/') || target.contains('\\') || target.contains(':') {
        return true;
    }
    let mut depth = path.components().count() - 1;
    for component in target.split('/') {
        match component {
            "" | "." => {}
            ".." if depth == 0 => return true,
            ".." => depth -= 1,
            name if name.eq_ignore_ascii_case(".git") => return true,
            _ => depth += 1,
        }
    }
    false
}

fn new_link(change: &TreeChange) -> Option<&TreeEntry> {
    change.after.as_ref().filter(|entry| entry.mode == SYMLINK)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(".gitattributes", true)]
    #[case("src/.gitignore", true)]
    #[case(".github/workflows/ci.yml", true)]
    #[case("ralph.toml", true)]
    #[case("Flake.nix", true)]
    #[case("docs/CLAUDE.md", true)]
    #[case(".claude/settings.json", true)]
    #[case(".mcp.json", true)]
    #[case(".npmrc", true)]
    #[case(".cargo/config.toml", true)]
    #[case("src/main.rs", false)]
    #[case("ralph.toml.md", false)]
    #[case("nix/flake.nix", false)]
    fn files_that_decide_what_runs_are_known(#[case] path: &str, #[case] policy: bool) {
        assert_eq!(is_policy_file(&path.into()), policy);
    }

    #[rstest]
    #[case("a", "b", false)]
    #[case("d/a", "../b", false)]
    #[case("d/a", "../../b", true)]
    #[case("a", "/etc/passwd", true)]
    #[case("a", "d/../../x", true)]
    #[case("a", ".git/hooks", true)]
    #[case("a", "C:\\x", true)]
    fn links_that_leave_the_repository_are_known(
        #[case] path: &str,
        #[case] target: &str,
        #[case] out: bool,
    ) {
        assert_eq!(leaves(&path.into(), target), out);
    }
}
