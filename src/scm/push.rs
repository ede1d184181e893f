//! Pushes to a remote repository with a credential of ralph.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::error::ScmError;
use super::git::{GitDir, failure, one_id, output};
use super::ref_move::RefMove;
use super::repository::Repository;
use crate::exec::{Command, ExitStatus};
use crate::id::ObjectId;
use crate::secret::Secret;

/// A remote repository, and the token that it wants.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its address, without a credential.
    pub url: String,
    /// A token for `Basic` authentication over HTTP.
    pub token: Secret,
}

impl Remote {
    /// What git sends in the header `Authorization`, after `Basic`, for a redactor.
    #[must_use]
    pub fn authorization(&self) -> Secret {
        let pair = format!("x-access-token:{}", self.token.expose());
        Secret::new(BASE64_STANDARD.encode(pair))
    }

    /// The settings of git for this remote. They are in the environment, which other users of the host cannot read. The header
    /// is bound to the host of the address, and settings of the repository that would send other credentials are reset.
    fn settings(&self) -> Vec<(String, String)> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("https", &self.url));
        let host = rest.split('/').next().unwrap_or(rest);
        let header = format!("http.{scheme}://{host}/.extraHeader");
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut settings = vec![
            set("credential.helper", ""),
            set("http.extraHeader", ""),
            set(&header, ""),
            set(
                &header,
                &format!("Authorization: Basic {}", self.authorization().expose()),
            ),
            set("protocol.https.allow", "always"),
        ];
        if scheme == "http" {
            settings.push(set("protocol.http.allow", "always"));
        }
        settings
    }

    pub(super) fn apply(&self, command: Command) -> Command {
        let settings = self.settings();
        let mut command = command.env("GIT_CONFIG_COUNT", settings.len().to_string());
        for (index, (name, value)) in settings.into_iter().enumerate() {
            command = command
                .env(format!("GIT_CONFIG_KEY_{index}"), name)
                .env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        command
    }
}

/// A repository that git reaches in its own way.
pub(super) trait GitRemote: Sync {
    /// Its address.
    fn url(&self) -> &str;

    /// A git command on `git` that reaches it. `args` are separated by spaces.
    fn command(&self, git: &GitDir, args: &str) -> Command;
}

impl GitRemote for Remote {
    fn url(&self) -> &str {
        &self.url
    }

    fn command(&self, git: &GitDir, args: &str) -> Command {
        self.apply(git.command(args))
    }
}

impl Repository {
    /// The address of a remote of this repository, as its configuration has it.
    pub async fn remote_url(&self, name: &str) -> Result<Option<String>, ScmError> {
        let command = self
            .git
            .command("config --local --get")
            .arg(format!("remote.{name}.url"));
        let exit = self.git.exit(&command).await?;
        if exit.status == ExitStatus::Code(1) {
            return Ok(None);
        }
        let printed = output(&command, &exit)?;
        Ok(Some(String::from_utf8_lossy(&printed).trim_end().to_owned()))
    }

    /// The commit of a remote's branch, asked now.
    pub async fn remote_branch(&self, remote: &Remote, branch: &str) -> Result<Option<ObjectId>, ScmError> {
        self.remote_ref(remote, &branch_ref(branch)).await
    }

    /// The object of a remote's ref, by its full name, asked now.
    pub async fn remote_ref(&self, remote: &Remote, name: &str) -> Result<Option<ObjectId>, ScmError> {
        let mut found = self.remote_refs(remote, &[name]).await?;
        Ok(found.remove(name))
    }

    /// Gets the objects of a remote's ref. No ref of this repository changes.
    pub(super) async fn fetch_objects(&self, remote: &dyn GitRemote, name: &str) -> Result<(), ScmError> {
        let args = "fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules --";
        let command = remote.command(&self.git, args).args([remote.url(), name]);
        self.git.run(&command).await.map(drop)
    }

    /// All branches of a remote and their commits, asked now.
    pub async fn remote_branches(&self, remote: &Remote) -> Result<BTreeMap<String, ObjectId>, ScmError> {
        let command = self
            .git
            .command("ls-remote --refs --heads --")
            .arg(remote.url.clone());
        let printed = self.git.run(&remote.apply(command)).await?;
        let text = String::from_utf8_lossy(&printed);
        let lines = text.lines().filter_map(|line| line.split_once("\trefs/heads/"));
        lines
            .map(|(id, name)| Ok((name.to_owned(), one_id(id.as_bytes())?)))
            .collect()
    }

    /// Pushes a commit to a remote's ref, by its full name, by compare-and-swap. `expected` is where the ref is now; `None`
    /// means that it must not exist. A ref elsewhere is [`ScmError::RefMoved`]; a push that the server refuses is
    /// [`ScmError::PushRefused`].
    pub async fn push_ref(
        &self,
        remote: &Remote,
        name: &str,
        commit: &ObjectId,
        expected: Option<&ObjectId>,
    ) -> Result<(), ScmError> {
        let push = RefMove {
            name: name.to_owned(),
            from: expected.cloned(),
            to: Some(commit.clone()),
        };
        let results = self.move_refs(remote, &[push]).await?;
        results.into_iter().collect()
    }

    /// Fails if the server would not accept a push with this token. Nothing is changed.
    pub async fn check_push(&self, remote: &Remote, branch: &str, commit: &ObjectId) -> Result<(), ScmError> {
        let command = self
            .git
            .command("push --dry-run --no-verify --no-recurse-submodules --")
            .args([remote.url.clone(), format!("{commit}:{}", branch_ref(branch))]);
        let command = remote.apply(command);
        let exit = self.git.exit(&command).await?;
        // A dry run on a branch that exists may not be a fast-forward; the server answered, which is what counts.
        if exit.success() || exit.stderr.text().contains("[rejected]") {
            Ok(())
        } else {
            Err(failure(&command, &exit))
        }
    }
}

fn branch_ref(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_bound_to_the_host() {
        let remote = Remote {
            url: "https://github.example/o/r.git".to_owned(),
            token: Secret::new("t0ken"),
        };
        let settings = remote.settings();
        let header = settings
            .iter()
            .rfind(|(_, value)| value.starts_with("Authorization"));
        let (name, value) = header.unwrap();
        assert_eq!(name, "http.https://github.example/.extraHeader");
        assert_eq!(value, "Authorization: Basic eC1hY2Nlc3MtdG9rZW46dDBrZW4=");
        assert!(!settings.iter().any(|(name, _)| name == "protocol.http.allow"));
    }
}
