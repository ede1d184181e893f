//! Access to one repository on GitHub with a credential that stays on the host: git over HTTP, and the API.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use reqwest::Url;

use super::BrokerRun;
use super::body::BrokerBody;
use super::forward::{pass, pass_error};
use super::headers;
use super::refusal::{BrokerRefusal, ErrorFormat};
use super::serve;
use super::upstream::{UpstreamError, join, parse_url};
use crate::id::RepositoryName;
use crate::network::HostName;
use crate::secret::Secret;

/// The headers that are forwarded: of git, and of clients of the API.
const HEADERS: [&str; 7] = [
    "git-protocol",
    "graphql-features",
    "if-modified-since",
    "if-none-match",
    "time-zone",
    "x-github-api-version",
    "x-gh-cache-ttl",
];

/// The parts of a [`GitHubUpstream`].
#[derive(Clone, Debug)]
pub struct GitHubSetup {
    /// The repository.
    pub repository: RepositoryName,
    /// A token that can read it.
    pub token: Secret,
    /// The address of git, for example `https://github.com`.
    pub url: String,
    /// The address of the API, for example `https://api.github.com`.
    pub api_url: String,
    /// What a sandbox may do.
    pub access: GitHubAccess,
}

/// What a sandbox may do with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitHubAccess {
    /// Read it.
    Read,
    /// Read it, and push with git.
    Push,
}

/// One repository and its credential.
pub struct GitHubUpstream {
    /// The host name that sandboxes use.
    pub host: HostName,
    setup: GitHubSetup,
    git: Url,
    api: Url,
}

impl GitHubUpstream {
    /// The host name that sandboxes use. Their connections to GitHub itself, without a credential, are not affected.
    pub const HOST: &str = "github.ralph.internal";
    /// The environment variable that the token is read from.
    pub const VARIABLE: &str = "GITHUB_PAT";

    /// The repository of this setup.
    pub fn new(setup: GitHubSetup) -> Result<Self, UpstreamError> {
        Ok(Self {
            host: HostName::parse(Self::HOST)?,
            git: parse_url(&setup.url)?,
            api: parse_url(&setup.api_url)?,
            setup,
        })
    }

    /// Responds to one request of a sandbox.
    pub(super) async fn respond(&self, run: &BrokerRun, request: Request<Incoming>) -> Response<BrokerBody> {
        let format = if request.uri().path().starts_with("/repos/") {
            ErrorFormat::GitHubApi
        } else {
            ErrorFormat::Text
        };
        match self.forward(run, request).await {
            Ok(response) => response,
            Err(refusal) => refusal.response(&self.host, format),
        }
    }

    async fn forward(
        &self,
        run: &BrokerRun,
        request: Request<Incoming>,
    ) -> Result<Response<BrokerBody>, BrokerRefusal> {
        let (head, body) = request.into_parts();
        headers::check_phantom(&head.headers, &run.phantom)?;
        let target = self.target(&head.method, head.uri.path(), head.uri.query())?;
        let (body, _memory) = serve::read_body(&run.memory, body).await?;
        let query = headers::strip_query(head.uri.query());
        let mut headers = headers::to_forward(&head.headers, &HEADERS, &[]);
        headers.insert(AUTHORIZATION, self.authorization(target)?);
        let url = self.url(target, head.uri.path(), query.as_deref());
        let request = run.broker.http.request(head.method, url);
        let sent = request.headers(headers).body(body).send().await;
        let response = sent.map_err(|error| BrokerRefusal::unreachable(&error))?;
        match response.status() {
            status if status.is_success() || status == StatusCode::NOT_MODIFIED => {
                Ok(pass(response, None, &self.setup.token))
            }
            status if status.is_redirection() => Err(BrokerRefusal::redirected()),
            StatusCode::UNAUTHORIZED => Err(BrokerRefusal::credential_refused(&remedy())),
            _ => Ok(pass_error(response, &self.setup.token).await),
        }
    }

    /// Where an allowed request goes. Paths are compared byte by byte, and an ambiguous one is refused.
    fn target(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
    ) -> Result<GitHubTarget, BrokerRefusal> {
        let not_allowed = || BrokerRefusal::path(method, path);
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if !path.bytes().all(is_plain) || parts.iter().any(|part| ["", ".", ".."].contains(part)) {
            return Err(not_allowed());
        }
        let (owner, name, operation) = match (method.as_str(), parts.as_slice(), query) {
            ("GET" | "HEAD", ["repos", owner, name, ..], _) => (owner, *name, GitHubOperation::ReadApi),
            (_, ["repos", owner, name, ..], _) => (owner, *name, GitHubOperation::WriteApi),
            ("GET", [owner, name, "info", "refs"], Some("service=git-upload-pack"))
            | ("POST", [owner, name, "git-upload-pack"], None) => {
                (owner, without_git(name), GitHubOperation::Fetch)
            }
            ("GET", [owner, name, "info", "refs"], Some("service=git-receive-pack"))
            | ("POST", [owner, name, "git-receive-pack"], None) => {
                (owner, without_git(name), GitHubOperation::Push)
            }
            _ => return Err(not_allowed()),
        };
        let repository = &self.setup.repository;
        if !repository.is(owner, name) {
            let text = format!("the credential is only for {repository}");
            return Err(BrokerRefusal::not_allowed(text));
        }
        match (operation, self.setup.access) {
            (GitHubOperation::ReadApi, _) => Ok(GitHubTarget::Api),
            (GitHubOperation::Fetch, _) | (GitHubOperation::Push, GitHubAccess::Push) => {
                Ok(GitHubTarget::Git)
            }
            (GitHubOperation::WriteApi, _) | (GitHubOperation::Push, GitHubAccess::Read) => {
                let text = format!("{repository} is read-only; ralph publishes the work itself");
                Err(BrokerRefusal::not_allowed(text))
            }
        }
    }

    fn url(&self, target: GitHubTarget, path: &str, query: Option<&str>) -> Url {
        match target {
            GitHubTarget::Git => join(&self.git, path, query),
            GitHubTarget::Api => join(&self.api, path, query),
        }
    }

    /// Git sends the token as a password, the API as a bearer token.
    fn authorization(&self, target: GitHubTarget) -> Result<HeaderValue, BrokerRefusal> {
        let text = match target {
            GitHubTarget::Git => {
                let pair = format!("x-access-token:{}", self.setup.token.expose());
                format!("Basic {}", BASE64_STANDARD.encode(pair))
            }
            GitHubTarget::Api => format!("Bearer {}", self.setup.token.expose()),
        };
        let invalid = |_| BrokerRefusal::invalid_credential(&remedy());
        let mut value = HeaderValue::from_str(&text).map_err(invalid)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// What a request does with a repository.
#[derive(Clone, Copy)]
enum GitHubOperation {
    ReadApi,
    WriteApi,
    Fetch,
    Push,
}

/// Which part of GitHub a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GitHubTarget {
    Git,
    Api,
}

/// Git accepts the name of a repository with and without this ending.
fn without_git(name: &str) -> &str {
    name.strip_suffix(".git").unwrap_or(name)
}

/// Whether a byte of a path has one meaning for every server.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~@+".contains(&byte)
}

fn remedy() -> String {
    format!("put a valid one into `{}`", GitHubUpstream::VARIABLE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn github(access: GitHubAccess) -> GitHubUpstream {
        GitHubUpstream::new(GitHubSetup {
            repository: RepositoryName::parse("o/r").unwrap(),
            token: Secret::new("t"),
            url: "https://git.example/base/".to_owned(),
            api_url: "https://api.example".to_owned(),
            access,
        })
        .unwrap()
    }

    #[track_caller]
    fn check(access: GitHubAccess, request: &str, expected: &str) {
        let (method, target) = request.split_once(' ').unwrap();
        let (path, query) = target
            .split_once('?')
            .map_or((target, None), |(path, query)| (path, Some(query)));
        let github = github(access);
        let target = github.target(&method.parse().unwrap(), path, query);
        let actual = match target {
            Ok(target) => github.url(target, path, query).to_string(),
            Err(refusal) => refusal.text,
        };
        assert_eq!(actual, expected);
    }

    const OTHER_REPOSITORY: &str = "the credential is only for o/r";
    const READ_ONLY: &str = "o/r is read-only; ralph publishes the work itself";

    #[rstest]
    #[case::refs(
        "GET /o/r.git/info/refs?service=git-upload-pack",
        "https://git.example/base/o/r.git/info/refs?service=git-upload-pack"
    )]
    #[case::without_git("POST /O/R/git-upload-pack", "https://git.example/base/O/R/git-upload-pack")]
    #[case::itself("GET /repos/o/r", "https://api.example/repos/o/r")]
    #[case::below(
        "HEAD /repos/o/r/pulls/1?page=2",
        "https://api.example/repos/o/r/pulls/1?page=2"
    )]
    #[case::push_refs("GET /o/r.git/info/refs?service=git-receive-pack", READ_ONLY)]
    #[case::push("POST /o/r.git/git-receive-pack", READ_ONLY)]
    #[case::write("POST /repos/o/r/issues", READ_ONLY)]
    #[case::delete("DELETE /repos/o/r", READ_ONLY)]
    #[case::other_name("GET /o/r2.git/info/refs?service=git-upload-pack", OTHER_REPOSITORY)]
    #[case::other_owner("POST /p/r/git-upload-pack", OTHER_REPOSITORY)]
    #[case::other_in_api("GET /repos/o/r2/pulls", OTHER_REPOSITORY)]
    #[case::the_account("GET /user", "no credential is added to GET /user")]
    #[case::graph("POST /graphql", "no credential is added to POST /graphql")]
    #[case::large_files(
        "POST /o/r.git/info/lfs/objects/batch",
        "no credential is added to POST /o/r.git/info/lfs/objects/batch"
    )]
    #[case::no_service("GET /o/r.git/info/refs", "no credential is added to GET /o/r.git/info/refs")]
    #[case::two_services(
        "GET /o/r.git/info/refs?service=git-upload-pack&service=git-receive-pack",
        "no credential is added to GET /o/r.git/info/refs"
    )]
    #[case::a_way_around(
        "GET /repos/o/r/../../../user",
        "no credential is added to GET /repos/o/r/../../../user"
    )]
    #[case::spelled_otherwise(
        "GET /repos/o/r/%2e%2e/x",
        "no credential is added to GET /repos/o/r/%2e%2e/x"
    )]
    #[case::another_fork(
        "GET /repos/o/r/compare/a...p:b",
        "no credential is added to GET /repos/o/r/compare/a...p:b"
    )]
    fn one_repository_can_be_read(#[case] request: &str, #[case] expected: &str) {
        check(GitHubAccess::Read, request, expected);
    }

    #[rstest]
    #[case(
        "GET /o/r.git/info/refs?service=git-receive-pack",
        "https://git.example/base/o/r.git/info/refs?service=git-receive-pack"
    )]
    #[case(
        "POST /o/r.git/git-receive-pack",
        "https://git.example/base/o/r.git/git-receive-pack"
    )]
    #[case("POST /repos/o/r/issues", READ_ONLY)]
    #[case("POST /o/r2.git/git-receive-pack", OTHER_REPOSITORY)]
    fn pushing_is_a_choice(#[case] request: &str, #[case] expected: &str) {
        check(GitHubAccess::Push, request, expected);
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_repository(path in "(/(repos|o|r|r\\.git|info|refs|git-upload-pack|\\.\\.|\\.|%2e|x|)){0,6}", get: bool) {
            let github = github(GitHubAccess::Push);
            let (method, query) = if get { (Method::GET, Some("service=git-upload-pack")) } else { (Method::POST, None) };
            if let Ok(target) = github.target(&method, &path, query) {
                let url = github.url(target, &path, query);
                let inside = url.path().starts_with("/repos/o/r") || url.path().starts_with("/base/o/r");
                prop_assert!(inside && url.path().ends_with(&path), "{url}");
            }
        }
    }
}
