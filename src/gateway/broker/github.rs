//! One repository on GitHub, with a credential that stays here: git over HTTP, and what the API tells of it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use reqwest::Url;
use serde_json::json;
use thiserror::Error;

use super::Guest;
use super::answer::{self, Answer};
use super::forward::{beginning, passed, refused};
use super::refusal::Refusal;
use super::serve;
use super::strip;
use super::upstream::{UpstreamError, below, plain_url};
use crate::gateway::meter::MeteredBody;
use crate::id::RepositoryName;
use crate::network::HostName;
use crate::secret::Secret;

/// Headers by which a request of one method can be taken for another.
const OTHER_METHODS: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// What the door to a repository is made from.
#[derive(Clone, Debug)]
pub struct GitHubSetup {
    /// The repository.
    pub repository: RepositoryName,
    /// A token that can read it.
    pub token: Secret,
    /// Where its git answers, for example `https://github.com`.
    pub url: String,
    /// Where its API answers, for example `https://api.github.com`.
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

/// One repository, and the credential for it.
pub struct GitHub {
    host: HostName,
    repository: RepositoryName,
    token: Secret,
    git: Url,
    api: Url,
    access: GitHubAccess,
}

impl GitHub {
    /// The name that sandboxes use. Their own ways to GitHub, without a credential, stay as they are.
    pub const HOST: &str = "github.ralph.internal";
    /// The variable that the token is read from.
    pub const VARIABLE: &str = "GITHUB_PAT";

    /// The door to a repository.
    pub fn new(setup: GitHubSetup) -> Result<Self, UpstreamError> {
        Ok(Self {
            host: HostName::parse(Self::HOST)?,
            repository: setup.repository,
            token: setup.token,
            git: plain_url(&setup.url)?,
            api: plain_url(&setup.api_url)?,
            access: setup.access,
        })
    }

    /// The name that sandboxes use for it.
    #[must_use]
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// Answers one request of a sandbox's.
    pub(super) async fn respond(&self, guest: &Guest, request: Request<Incoming>) -> Response<Answer> {
        let of_api = request.uri().path().starts_with("/repos/");
        match self.forward(guest, request).await {
            Ok(response) => response,
            Err(refused) => refused.response(of_api),
        }
    }

    async fn forward(&self, guest: &Guest, request: Request<Incoming>) -> Result<Response<Answer>, Refused> {
        let (head, body) = request.into_parts();
        strip::check(&head.headers, &guest.phantom)?;
        let wish = self.wish(&head.method, head.uri.path(), head.uri.query())?;
        let (body, _room) = serve::read(guest, body).await?;
        let query = strip::query(head.uri.query());
        let mut headers = strip::forwarded(&head.headers);
        for name in OTHER_METHODS {
            headers.remove(name);
        }
        headers.insert(AUTHORIZATION, self.authorization(wish)?);
        let url = self.url(wish, head.uri.path(), query.as_deref());
        let request = guest.broker.http.request(head.method, url);
        let sent = request.headers(headers).body(body).send().await;
        let response = sent.map_err(|error| Refused::Unreachable(error.without_url()))?;
        match response.status() {
            status if status.is_success() || status == StatusCode::NOT_MODIFIED => Ok(self.pass(response)),
            status if status.is_redirection() => Err(Refused::Redirected),
            StatusCode::UNAUTHORIZED => Err(Refused::Credential),
            _ => Ok(self.pass_refusal(response).await),
        }
    }

    /// What a request wants, where it may. The path is taken letter by letter, and one that could be read in two ways is
    /// refused.
    fn wish(&self, method: &Method, path: &str, query: Option<&str>) -> Result<Wish, Refused> {
        let other = || Refused::Path {
            method: method.to_string(),
            path: path.to_owned(),
        };
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if !path.bytes().all(is_plain) || parts.iter().any(|part| ["", ".", ".."].contains(part)) {
            return Err(other());
        }
        let (owner, name, wanted) = match parts.as_slice() {
            ["repos", owner, name, ..] => (*owner, *name, Wanted::Api),
            [owner, name, "info", "refs"] => (*owner, without_git(name), Wanted::Refs),
            [owner, name, "git-upload-pack"] => (*owner, without_git(name), Wanted::Fetch),
            [owner, name, "git-receive-pack"] => (*owner, without_git(name), Wanted::Push),
            _ => return Err(other()),
        };
        if !self.repository.is(owner, name) {
            return Err(Refused::Elsewhere(self.repository.clone()));
        }
        match (method.as_str(), wanted, query) {
            ("GET" | "HEAD", Wanted::Api, _) => Ok(Wish::Api),
            ("GET", Wanted::Refs, Some("service=git-upload-pack")) | ("POST", Wanted::Fetch, None) => {
                Ok(Wish::Git)
            }
            ("GET", Wanted::Refs, Some("service=git-receive-pack")) | ("POST", Wanted::Push, None) => {
                match self.access {
                    GitHubAccess::Push => Ok(Wish::Git),
                    GitHubAccess::Read => Err(Refused::ReadOnly(self.repository.clone())),
                }
            }
            (_, Wanted::Api, _) => Err(Refused::ReadOnly(self.repository.clone())),
            _ => Err(other()),
        }
    }

    fn url(&self, wish: Wish, path: &str, query: Option<&str>) -> Url {
        match wish {
            Wish::Git => below(&self.git, path, query),
            Wish::Api => below(&self.api, path, query),
        }
    }

    /// Git takes a token as a password, the API as it is.
    fn authorization(&self, wish: Wish) -> Result<HeaderValue, Refused> {
        let text = match wish {
            Wish::Git => {
                let pair = format!("x-access-token:{}", self.token.expose());
                format!("Basic {}", BASE64_STANDARD.encode(pair))
            }
            Wish::Api => format!("Bearer {}", self.token.expose()),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| Refused::Credential)?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn pass(&self, response: reqwest::Response) -> Response<Answer> {
        let response: hyper::Response<reqwest::Body> = response.into();
        let (head, body) = response.into_parts();
        passed(&head, MeteredBody::free(body), &self.token)
    }

    async fn pass_refusal(&self, response: reqwest::Response) -> Response<Answer> {
        let (status, headers) = (response.status(), response.headers().clone());
        refused(status, &headers, &beginning(response).await, &self.token)
    }
}

/// What may be done for a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Git,
    Api,
}

/// What a path names.
enum Wanted {
    Refs,
    Fetch,
    Push,
    Api,
}

/// Bytes of a path that mean themselves everywhere.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~@+".contains(&byte)
}

fn without_git(name: &str) -> &str {
    name.strip_suffix(".git").unwrap_or(name)
}

/// Why a request was not forwarded, or its answer not passed back.
#[derive(Debug, Error)]
enum Refused {
    #[error("the request does not show the phantom of this run")]
    NoPhantom,
    #[error(
        "the request shows a credential that is not the phantom of this run; keys of a sandbox's own are not passed on"
    )]
    NotThePhantom,
    #[error("the credential is for {0} alone")]
    Elsewhere(RepositoryName),
    #[error("{0} can be read and not written to; ralph hands the work back by itself")]
    ReadOnly(RepositoryName),
    #[error("no credential is added to {method} {path}")]
    Path { method: String, path: String },
    #[error("the body of the request is too large, or did not come in time")]
    Body,
    #[error(
        "the credential for GitHub was refused; on the host, put a valid one into `{}`",
        GitHub::VARIABLE
    )]
    Credential,
    #[error("GitHub cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("GitHub points to another address, where the credential does not go")]
    Redirected,
}

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unreachable(_) | Self::Redirected => StatusCode::BAD_GATEWAY,
            // Not 401, at which git would ask for a password.
            _ => StatusCode::FORBIDDEN,
        }
    }

    /// In the form of the API, or as plain text, which git shows.
    fn response(&self, of_api: bool) -> Response<Answer> {
        let message = format!("ralph: {}: {self}", GitHub::HOST);
        if of_api {
            return answer::json(self.status(), &json!({ "message": message }));
        }
        let mut response = Response::new(Answer::Whole(Some(format!("{message}\n").into())));
        *response.status_mut() = self.status();
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, plain);
        response
    }
}

impl From<Refusal> for Refused {
    /// What is said of the phantom and of the body.
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoPhantom => Self::NoPhantom,
            Refusal::NotThePhantom => Self::NotThePhantom,
            _ => Self::Body,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn github(access: GitHubAccess) -> GitHub {
        GitHub::new(GitHubSetup {
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
        let wish = github.wish(&method.parse().unwrap(), path, query);
        let said = match wish {
            Ok(wish) => github.url(wish, path, query).to_string(),
            Err(refused) => refused.to_string(),
        };
        assert_eq!(said, expected);
    }

    const ELSEWHERE: &str = "the credential is for o/r alone";
    const READ_ONLY: &str = "o/r can be read and not written to; ralph hands the work back by itself";

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
    #[case::other_name("GET /o/r2.git/info/refs?service=git-upload-pack", ELSEWHERE)]
    #[case::other_owner("POST /p/r/git-upload-pack", ELSEWHERE)]
    #[case::other_in_api("GET /repos/o/r2/pulls", ELSEWHERE)]
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
    #[case("POST /o/r2.git/git-receive-pack", ELSEWHERE)]
    fn pushing_is_a_choice(#[case] request: &str, #[case] expected: &str) {
        check(GitHubAccess::Push, request, expected);
    }

    proptest! {
        #[test]
        fn no_path_leads_out_of_the_repository(path in "(/(repos|o|r|r\\.git|info|refs|git-upload-pack|\\.\\.|\\.|%2e|x|)){0,6}", get: bool) {
            let github = github(GitHubAccess::Push);
            let (method, query) = if get { (Method::GET, Some("service=git-upload-pack")) } else { (Method::POST, None) };
            if let Ok(wish) = github.wish(&method, &path, query) {
                let url = github.url(wish, &path, query);
                let inside = url.path().starts_with("/repos/o/r") || url.path().starts_with("/base/o/r");
                prop_assert!(inside && url.path().ends_with(&path), "{url}");
            }
        }
    }
}
