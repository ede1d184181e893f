//! From the configuration to the forge, and its credential.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, ForgeType};
use crate::digest::Digest;
use crate::exec::{Command, Discard};
use crate::github::{GitHubApp, GitHubClient, GitHubCredential, GitHubForge, GitHubPace, repository_name};
use crate::id::{ObjectId, RepositoryName};
use crate::scm::{Forge, LocalForge, Remote, Repository};
use crate::secret::{Redactor, Secret};
use crate::state::RunDir;

use super::issue::{ClaimedForge, ClaimedIssue};
use super::ralph::RunTarget;
use super::{AssemblyContext, AssemblyError, ErrorTopic};

const TOKEN: &str = "GITHUB_PAT";
const APP: [&str; 3] = [
    "GITHUB_APP_ID",
    "GITHUB_APP_INSTALLATION_ID",
    "GITHUB_APP_PRIVATE_KEY_PEM",
];

/// Refuses a forge without a repository or a credential, before a run exists.
pub(super) async fn check(
    context: &AssemblyContext,
    config: &Config,
    target: &RunTarget,
) -> Result<(), AssemblyError> {
    if config.settings.forge.kind == ForgeType::Local {
        if config.settings.done.wait_for_ci {
            return Err(AssemblyError::usage(
                "`done.wait_for_ci` needs a forge with CI, and `local` has none",
            )
            .with_topic(ErrorTopic::Configuration)
            .with_hint("set `[forge] type = \"github\"`, or leave `wait_for_ci` out"));
        }
        return Ok(());
    }
    let opened;
    let repository = match target {
        RunTarget::New { repository, .. } => repository,
        RunTarget::Existing(dir) => {
            opened = Repository::open(context.surroundings.host(), &dir.facts().repository).await?;
            &opened
        }
    };
    github_name(config, repository).await?;
    create_client(context, config).await?;
    Ok(())
}

/// The branches that the forge has, so that a new run does not choose one of them. No branches if it does not answer: the
/// checks before the run say why, in better words than git.
pub(super) async fn taken_branches(
    context: &AssemblyContext,
    config: &Config,
    repository: &Repository,
) -> Result<BTreeMap<String, ObjectId>, AssemblyError> {
    let forge = &config.settings.forge;
    if forge.kind == ForgeType::Local {
        return Ok(BTreeMap::new());
    }
    let name = github_name(config, repository).await?;
    let client = create_client(context, config).await?;
    let Ok(token) = client.token().await else {
        return Ok(BTreeMap::new());
    };
    let url = format!("{}/{name}.git", forge.github.url.trim_end_matches('/'));
    let host = context.surroundings.builder_host();
    let repository = Repository::open(host, repository.common_dir()).await?;
    let branches = repository.remote_branches(&Remote { url, token }).await;
    Ok(branches.unwrap_or_default())
}

/// The forge of a run, which works on this issue.
pub(super) async fn create(
    context: &AssemblyContext,
    config: &Config,
    run: &RunDir,
    redactor: &Redactor,
    issue: Option<Arc<ClaimedIssue>>,
) -> Result<Arc<dyn Forge>, AssemblyError> {
    // Git needs the proxies and certificates of the user to reach a server.
    let host = context.surroundings.builder_host().with_name(run.path());
    let repository = Repository::open(host, &run.facts().repository)
        .await?
        .with_scratch(run.path());
    match config.settings.forge.kind {
        ForgeType::Local => Ok(Arc::new(LocalForge::new(repository, run.pull_request_file()))),
        ForgeType::Github => {
            let name = github_name(config, &repository).await?;
            let client = create_client(context, config).await?;
            // A token that cannot be had now is a finding of the checks before the run.
            let _ = learn_token(&client, redactor).await;
            let url = &config.settings.forge.github.url;
            let forge = GitHubForge::new(client, name, url, repository, redactor.clone());
            Ok(match issue {
                Some(issue) => Arc::new(ClaimedForge { forge, issue }),
                None => Arc::new(forge),
            })
        }
    }
}

/// Lets a redactor know the token of a client, and the form in which git sends it.
pub(super) async fn learn_token(client: &GitHubClient, redactor: &Redactor) -> Result<(), AssemblyError> {
    let remote = Remote {
        url: String::new(),
        token: client.token().await?,
    };
    let authorization = remote.authorization();
    redactor.learn([remote.token, authorization]);
    Ok(())
}

/// The credential for fetching a repository of the forge over HTTPS. Other repositories are fetched with the user's own.
pub(super) async fn fetch_credential(
    context: &AssemblyContext,
    config: &Config,
    url: &str,
) -> Result<Option<Remote>, AssemblyError> {
    let forge = &config.settings.forge;
    // Only with the scheme of the forge: an unencrypted address of the same host would reveal the token.
    let base = format!("{}/", forge.github.url.trim_end_matches('/'));
    let is_there = url.starts_with(&base) && repository_name(url, &forge.github.url).is_some();
    if forge.kind == ForgeType::Local || !is_there {
        return Ok(None);
    }
    let client = create_client(context, config).await?;
    Ok(Some(Remote {
        url: url.to_owned(),
        token: client.token().await?,
    }))
}

/// The repository on GitHub: the one that is configured, else the one of the remote `origin`.
pub(super) async fn github_name(
    config: &Config,
    repository: &Repository,
) -> Result<RepositoryName, AssemblyError> {
    let settings = &config.settings.forge.github;
    if let Some(name) = &settings.repository {
        return Ok(name.clone());
    }
    let origin = repository.remote_url("origin").await?;
    let name = origin
        .as_deref()
        .and_then(|origin| repository_name(origin, &settings.url));
    name.ok_or_else(|| {
        let problem = match &origin {
            Some(_) => format!("the remote `origin` is not a repository at {}", settings.url),
            None => "there is no remote `origin`".to_owned(),
        };
        AssemblyError::usage(format!("{problem}, so the pull request has no place"))
            .with_topic(ErrorTopic::Forge)
            .with_hint("set `repository = \"owner/name\"` in `[forge.github]`, or `[forge] type = \"local\"`")
    })
}

/// The client for the configured server and credential. All runs of this process share it.
pub(super) async fn create_client(
    context: &AssemblyContext,
    config: &Config,
) -> Result<Arc<GitHubClient>, AssemblyError> {
    let settings = &config.settings.forge.github;
    for url in [&settings.url, &settings.api_url] {
        check_encrypted(url)?;
    }
    let credential = credential(context, config).await?;
    let (minute, hour) = (settings.writes_per_minute.get(), settings.writes_per_hour.get());
    let key = format!(
        "{} {minute} {hour} {}",
        settings.api_url,
        credential.fingerprint()
    );
    let pace = GitHubPace {
        between_writes: Duration::from_secs(60) / minute,
        writes_per_hour: hour as usize,
        ..GitHubPace::default()
    };
    let clock = context.surroundings.clock();
    let create = || GitHubClient::new(&settings.api_url, credential, clock, Redactor::default(), pace);
    let client = context
        .surroundings
        .github_client(Digest::sha256(key.as_bytes()), create)?;
    Ok(client)
}

/// Refuses to send a credential unencrypted, except to this host.
fn check_encrypted(url: &str) -> Result<(), AssemblyError> {
    let Some(rest) = url.strip_prefix("http://") else {
        return Ok(());
    };
    let authority = rest.split('/').next().unwrap_or(rest);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
        return Ok(());
    }
    Err(
        AssemblyError::usage(format!("the credential would go to {url} unencrypted"))
            .with_topic(ErrorTopic::Forge)
            .with_hint("use an https:// address in `[forge.github]`"),
    )
}

/// An App, else a token of the configuration, else that of the program `gh`.
async fn credential(context: &AssemblyContext, config: &Config) -> Result<GitHubCredential, AssemblyError> {
    let app = APP.map(|variable| config.credential(variable));
    if let [Some(id), Some(installation), Some(key)] = &app {
        let app = GitHubApp::new(id.expose(), installation.expose(), key)?;
        return Ok(GitHubCredential::App(Box::new(app)));
    }
    let missing: Vec<&str> = APP
        .iter()
        .zip(&app)
        .filter(|(_, value)| value.is_none())
        .map(|(name, _)| *name)
        .collect();
    if missing.len() < APP.len() {
        return Err(
            AssemblyError::usage(format!("the GitHub App lacks {}", missing.join(" and ")))
                .with_topic(ErrorTopic::Forge)
                .with_hint(format!(
                    "set all of {}, or none of them and `{TOKEN}`",
                    APP.join(", ")
                )),
        );
    }
    if let Some(token) = config.credential(TOKEN) {
        return Ok(GitHubCredential::Token(token));
    }
    match token_of_gh(context, &config.settings.forge.github.url).await {
        Some(token) => Ok(GitHubCredential::Token(token)),
        None => Err(AssemblyError::usage("the forge `github` has no credential").with_topic(ErrorTopic::Forge).with_hint(format!(
            "set `{TOKEN}` to a token with `contents: write` and `pull_requests: write`, or set {}, or log in with \
             `gh auth login`",
            APP.join(", ")
        ))),
    }
}

/// The token that the user's `gh` has for this server, if it is installed and logged in.
async fn token_of_gh(context: &AssemblyContext, url: &str) -> Option<Secret> {
    let host = url.split_once("://").map_or(url, |(_, host)| host);
    let command = Command::new("gh")
        .args(["auth", "token", "--hostname", host])
        .timeout(Duration::from_secs(20));
    let exit = context
        .surroundings
        .desktop_host()
        .run(&command, &mut Discard)
        .await
        .ok()?;
    let token = exit.stdout.text();
    (exit.success() && !token.trim().is_empty()).then(|| Secret::new(token.trim()))
}
