//! The state remote: a repository of its own to which checkpoints are pushed, so that a run can go on on another host.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use super::checkpoint::{Checkpoints, state_ref};
use super::error::ScmError;
use super::git::{GitDir, hardened, output, run_on_host};
use super::push::GitRemote;
use super::ref_move::RefMove;
use super::repository::Repository;
use crate::exec::{Command, Host};
use crate::id::{ObjectId, RunId};
use crate::text::error_chain;

/// The waits before a push that failed is tried again. The work of an iteration depends on it.
const RETRY_WAITS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(16),
];

/// How long a server may take to show whether a repository is public.
const PUBLIC_TIMEOUT: Duration = Duration::from_secs(20);

/// A repository to which checkpoints are pushed. Git uses the user's own settings: SSH keys and credential helpers.
#[derive(Clone, Debug)]
pub struct StateRemote {
    /// A path, or an address for SSH or HTTPS without a password.
    pub url: String,
    /// Starts git with what these settings need, such as the address of an SSH agent.
    pub host: Host,
}

impl GitRemote for StateRemote {
    fn url(&self) -> &str {
        &self.url
    }

    fn command(&self, git: &GitDir, args: &str) -> Command {
        git.user_command(args)
    }
}

impl StateRemote {
    /// The address at which the repository can be read without a credential. `None` if it cannot. A server that is asked by
    /// SSH is tried by HTTPS as well, where GitHub, GitLab and others have the same repositories.
    pub async fn public_address(&self) -> Result<Option<String>, ScmError> {
        let Some(address) = https_address(&self.url) else {
            return Ok(None);
        };
        let command = hardened(&["-c", "credential.helper="])
            .args(["-c", "protocol.https.allow=always"])
            .args(["-c", "protocol.http.allow=always"])
            .args(["ls-remote", "--", &address, "HEAD"])
            // Settings of a repository and a `.netrc` in the home directory may have credentials.
            .cwd("/")
            .env("HOME", "/nonexistent")
            .timeout(PUBLIC_TIMEOUT);
        let exit = run_on_host(&self.host, &command).await?;
        Ok(exit.success().then_some(address))
    }

    /// Copies all state refs into a new bare repository in this directory, which is empty.
    pub async fn copy_states(&self, dir: &Path) -> Result<Repository, ScmError> {
        let init = hardened(&["init", "--quiet", "--bare"]).cwd(dir);
        output(&init, &run_on_host(&self.host, &init).await?)?;
        let repository = Repository::open(self.host.clone(), dir).await?;
        let fetch = self
            .command(&repository.git, "fetch --quiet --no-tags --")
            .args([&*self.url, "+refs/ralph/*/state:refs/ralph/*/state"]);
        repository.git.run(&fetch).await?;
        Ok(repository)
    }

    /// Removes the state ref of a run from the remote repository. One that does not exist is no error.
    pub async fn remove(&self, repository: &Repository, run: &RunId) -> Result<(), ScmError> {
        let repository = repository.with_host(self.host.clone());
        let name = state_ref(run);
        let Some(found) = repository.remote_refs(self, &[&name]).await?.remove(&name) else {
            return Ok(());
        };
        let removal = RefMove {
            name,
            from: Some(found),
            to: None,
        };
        let results = repository.move_refs_at(self, &[removal]).await?;
        results.into_iter().collect()
    }
}

/// The address for HTTPS of a repository that is not a path.
fn https_address(url: &str) -> Option<String> {
    if url.starts_with('/') {
        return None;
    }
    match url.split_once("://") {
        Some(("http" | "https", _)) => Some(url.to_owned()),
        Some((_, rest)) => {
            let (host, path) = rest.split_once('/')?;
            let host = host.rsplit('@').next()?;
            // The port is that of SSH.
            let host = host.split(':').next()?;
            Some(format!("https://{host}/{path}"))
        }
        // As scp writes it: `git@host:owner/name`.
        None => {
            let (host, path) = url.split_once(':')?;
            let host = host.rsplit('@').next()?;
            Some(format!("https://{host}/{}", path.trim_start_matches('/')))
        }
    }
}

impl Checkpoints {
    /// Pushes a checkpoint to the state remote by compare-and-swap, if there is one. A failure that is not a refusal may pass.
    pub(super) async fn push(&self, commit: &ObjectId, expected: Option<&ObjectId>) -> Result<(), ScmError> {
        let Some(remote) = &self.remote else {
            return Ok(());
        };
        let repository = self.repository().with_host(remote.host.clone());
        let push = RefMove {
            name: self.ref_name(),
            from: expected.cloned(),
            to: Some(commit.clone()),
        };
        let mut waits = RETRY_WAITS.into_iter();
        loop {
            let results = repository.move_refs_at(remote, std::slice::from_ref(&push)).await;
            let pushed: Result<(), ScmError> = results.and_then(|results| results.into_iter().collect());
            match (pushed, waits.next()) {
                (Err(error @ ScmError::Git { .. }), Some(wait)) => {
                    tracing::warn!(error = %error_chain(&error), "cannot push a checkpoint; trying again");
                    sleep(wait).await;
                }
                (pushed, _) => return pushed,
            }
        }
    }

    /// Gets the newest checkpoint from the state remote, if there is one. A remote that is behind, because it was configured
    /// after the run began, gets the newest one of this repository.
    pub async fn sync(&self) -> Result<(), ScmError> {
        let Some(remote) = &self.remote else {
            return Ok(());
        };
        let name = self.ref_name();
        let repository = self.repository().with_host(remote.host.clone());
        let ours = self.repository().read_ref(&name).await?;
        let theirs = repository.remote_refs(remote, &[&name]).await?.remove(&name);
        match (&ours, &theirs) {
            (Some(ours), None) => self.push(ours, None).await,
            (ours, Some(theirs)) if ours.as_ref() != Some(theirs) => {
                repository.fetch_objects(remote, &name).await?;
                match ours {
                    Some(ours) if self.repository().is_ancestor(theirs, ours.as_str()).await? => {
                        self.push(ours, Some(theirs)).await
                    }
                    _ => self.repository().update_ref(&name, theirs, ours.as_ref()).await,
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/srv/state.git", None)]
    #[case("https://forge.example/o/r.git", Some("https://forge.example/o/r.git"))]
    #[case("git@forge.example:o/r.git", Some("https://forge.example/o/r.git"))]
    #[case("ssh://git@forge.example:2222/o/r.git", Some("https://forge.example/o/r.git"))]
    fn a_repository_is_looked_for_by_https(#[case] url: &str, #[case] expected: Option<&str>) {
        assert_eq!(https_address(url).as_deref(), expected);
    }
}
