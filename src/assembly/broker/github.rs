//! The GitHub repository that agents reach with a credential.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::gateway::Phantom;
use crate::gateway::broker::{GitHubAccess, GitHubSetup, GitHubUpstream};

use crate::sandbox::CredentialRoute;

use super::super::{AssemblyError, ErrorTopic};

/// The configured repository, if any. Only the broker can add its credential.
pub(super) fn setup(config: &Config, route: CredentialRoute) -> Result<Option<GitHubSetup>, AssemblyError> {
    let settings = &config.settings.sandbox.github;
    let Some(repository) = settings.repository.clone() else {
        return Ok(None);
    };
    if matches!(route, CredentialRoute::Provider | CredentialRoute::None) {
        return Err(AssemblyError::usage(
            "`sandbox.github` needs a gateway between the sandbox and GitHub, and this sandbox has none",
        )
        .with_topic(ErrorTopic::Credentials)
        .with_hint(
            "use `type = \"docker\"` with a network policy other than `allow-all`, or `type = \"local\"`",
        ));
    }
    let variable = GitHubUpstream::VARIABLE;
    let token = config.credential(variable).ok_or_else(|| {
        AssemblyError::usage(format!(
            "`{variable}` is not set, so {repository} cannot be read with it"
        ))
        .with_topic(ErrorTopic::Credentials)
        .with_hint(
            "a token that can read that repository alone is enough; a public one needs no `sandbox.github`",
        )
    })?;
    Ok(Some(GitHubSetup {
        repository,
        token,
        url: settings.url.clone(),
        api_url: settings.api_url.clone(),
        access: if settings.dangerously_allow_push {
            GitHubAccess::Push
        } else {
            GitHubAccess::Read
        },
    }))
}

/// The variables that point git and clients of the API to the broker's address.
pub(super) fn variables(setup: &GitHubSetup, address: &str, phantom: &Phantom) -> BTreeMap<String, String> {
    let (repository, phantom) = (&setup.repository, phantom.expose());
    let inside = format!("url.{address}/{repository}.git.insteadOf");
    let host = setup
        .url
        .split_once("://")
        .map_or(setup.url.as_str(), |(_, host)| host);
    let mut git = vec![(
        format!("http.{address}/.extraHeader"),
        format!("Authorization: Bearer {phantom}"),
    )];
    git.extend(
        [
            format!("{}/{repository}.git", setup.url),
            format!("git@{host}:{repository}.git"),
            format!("ssh://git@{host}/{repository}.git"),
        ]
        .map(|outside| (inside.clone(), outside)),
    );
    let mut variables = BTreeMap::from([
        ("GITHUB_API_URL".to_owned(), address.to_owned()),
        ("GITHUB_REPOSITORY".to_owned(), repository.to_string()),
        ("GITHUB_TOKEN".to_owned(), phantom.to_owned()),
        ("GIT_CONFIG_COUNT".to_owned(), git.len().to_string()),
    ]);
    for (number, (key, value)) in git.into_iter().enumerate() {
        variables.insert(format!("GIT_CONFIG_KEY_{number}"), key);
        variables.insert(format!("GIT_CONFIG_VALUE_{number}"), value);
    }
    variables
}
