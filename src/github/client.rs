//! Calls to GitHub's REST API: authentication, retries, rate limits and pages.
//!
//! A call that creates something is repeated only if it surely had no effect. After a lost answer the caller looks first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{ACCEPT, HeaderValue, IF_NONE_MATCH};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::sleep;

use super::answer::{CallFailure, asked_pause, error_message, has_next_page, is_rate_limit, read};
use super::credential::{GitHubApp, GitHubCredential};
use super::error::GitHubError;
use super::kept::KeptAnswer;
use super::pace::{GitHubPace, LimitWaits, Throttle};
use crate::clock::Clock;
use crate::id::RepositoryName;
use crate::secret::{Redactor, Secret};

/// The version of the API that ralph is written for.
const API_VERSION: &str = "2026-03-10";
/// GitHub's own API, which has that version. Other servers are asked.
const PUBLIC_API: &str = "https://api.github.com";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a call is made that fails for a reason that may pass.
const ATTEMPTS: u32 = 4;
/// How many pages of a list are read at most.
pub(super) const MAX_PAGES: usize = 50;
/// An installation token is replaced this long before it expires.
const TOKEN_MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// How many bytes at the end of a text are read.
const MAX_TEXT: usize = 1 << 20;
/// A client for one server and one credential. Clones of its `Arc` share the pace and the token.
pub struct GitHubClient {
    http: Client,
    api_url: String,
    credential: GitHubCredential,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    pace: GitHubPace,
    throttle: Throttle,
    installation: Mutex<Option<InstallationToken>>,
    /// Whether the server lists [`API_VERSION`].
    is_pinned: OnceCell<bool>,
    /// The name under which an App acts.
    app_login: OnceCell<String>,
    /// The repositories in which the account may open pull requests.
    pub(super) pull_repositories: Mutex<BTreeSet<RepositoryName>>,
    /// Answers that are asked for again and again, by path.
    pub(super) kept: Mutex<HashMap<String, KeptAnswer>>,
}

#[derive(Deserialize)]
struct AppName {
    slug: String,
}

#[derive(Clone, Debug, Deserialize)]
struct InstallationToken {
    token: Secret,
    expires_at: Timestamp,
}

impl GitHubClient {
    /// A client for the API at this address. Tokens that it gets are added to the redactor.
    pub fn new(
        api_url: &str,
        credential: GitHubCredential,
        clock: Arc<dyn Clock>,
        redactor: Redactor,
        pace: GitHubPace,
    ) -> Result<Self, GitHubError> {
        let http = Client::builder()
            .user_agent(concat!("ralph/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .build()
            .map_err(|source| GitHubError::Unreachable {
                call: "create the HTTP client".to_owned(),
                source,
            })?;
        if let GitHubCredential::Token(token) = &credential {
            redactor.learn([token.clone()]);
        }
        Ok(Self {
            http,
            api_url: api_url.trim_end_matches('/').to_owned(),
            credential,
            clock,
            redactor,
            pace,
            throttle: Throttle::default(),
            installation: Mutex::default(),
            is_pinned: OnceCell::new(),
            app_login: OnceCell::new(),
            pull_repositories: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// The time by the client's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The pace that it keeps.
    pub(super) fn pace(&self) -> &GitHubPace {
        &self.pace
    }

    /// A token that is valid now, for git too.
    pub async fn token(&self) -> Result<Secret, GitHubError> {
        let app = match &self.credential {
            GitHubCredential::Token(token) => return Ok(token.clone()),
            GitHubCredential::App(app) => app,
        };
        let mut held = self.installation.lock().await;
        let now = self.clock.now();
        if let Some(held) = held.as_ref().filter(|held| held.expires_at - TOKEN_MARGIN > now) {
            return Ok(held.token.clone());
        }
        let created = self.create_token(app, now).await?;
        self.redactor.learn([created.token.clone()]);
        Ok(held.insert(created).token.clone())
    }

    /// Lets the next call get another token, because GitHub does not accept this one: it ends tokens of an App early when its
    /// permissions or repositories change. `false` for a credential that has no other.
    pub(super) async fn replace_token(&self, refused: &Secret) -> bool {
        if matches!(self.credential, GitHubCredential::Token(_)) {
            return false;
        }
        let mut held = self.installation.lock().await;
        // Another call may have replaced it already.
        held.take_if(|held| held.token.expose() == refused.expose());
        true
    }

    /// Creates an installation token. A token whose answer was lost expires unused, so this may be repeated.
    async fn create_token(&self, app: &GitHubApp, now: Timestamp) -> Result<InstallationToken, GitHubError> {
        let jwt = app.jwt(now)?;
        self.redactor.learn([jwt.clone()]);
        let path = format!("app/installations/{}/access_tokens", app.installation);
        let call = GitHubCall::new(self, Method::POST, &path).repeatable();
        let response = call.send_as(Some(&jwt)).await?;
        read(&call.name, response).await
    }

    /// The name under which an App acts. `None` for a token: its account is that of a person, or made for ralph.
    pub(super) async fn app_login(&self) -> Result<Option<&str>, GitHubError> {
        let GitHubCredential::App(app) = &self.credential else {
            return Ok(None);
        };
        let ask = async || {
            let jwt = app.jwt(self.clock.now())?;
            self.redactor.learn([jwt.clone()]);
            let call = GitHubCall::new(self, Method::GET, "app");
            let app: AppName = read(&call.name, call.send_as(Some(&jwt)).await?).await?;
            Ok(format!("{}[bot]", app.slug))
        };
        self.app_login
            .get_or_try_init(ask)
            .await
            .map(|login| Some(login.as_str()))
    }

    /// Gets an object.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, GitHubError> {
        GitHubCall::new(self, Method::GET, path).json().await
    }

    /// Gets an object. `None` if it does not exist, or the token cannot see it.
    pub(super) async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, GitHubError> {
        match self.get(path).await {
            Err(error) if error.status() == Some(404) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Gets all pages of a list.
    pub(super) async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, GitHubError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut items = Vec::new();
        for page in 1..=MAX_PAGES {
            let path = format!("{path}{separator}per_page=100&page={page}");
            let call = GitHubCall::new(self, Method::GET, &path);
            let response = call.send().await?;
            let is_last = !has_next_page(response.headers());
            items.extend(read::<Vec<T>>(&call.name, response).await?);
            if is_last {
                return Ok(items);
            }
        }
        Err(too_many_pages(path))
    }

    /// Gets the end of a text. GitHub redirects to another host for it, which does not get the token.
    pub(super) async fn text(&self, path: &str) -> Result<String, GitHubError> {
        let call = GitHubCall::new(self, Method::GET, path);
        let mut response = call.send().await?;
        let mut body = Vec::new();
        let unreachable = |source: reqwest::Error| GitHubError::Unreachable {
            call: call.name.clone(),
            source: source.without_url(),
        };
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&chunk);
            if body.len() > 2 * MAX_TEXT {
                body.drain(..body.len() - MAX_TEXT);
            }
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Creates something. It is repeated only if it surely had no effect.
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: Value) -> Result<T, GitHubError> {
        GitHubCall::new(self, Method::POST, path).body(body).json().await
    }

    /// Adds what is not there yet, so it may be repeated.
    pub(super) async fn add<T: DeserializeOwned>(&self, path: &str, body: Value) -> Result<T, GitHubError> {
        let call = GitHubCall::new(self, Method::POST, path);
        call.body(body).repeatable().json().await
    }

    /// Sets fields of an object.
    pub(super) async fn patch<T: DeserializeOwned>(&self, path: &str, body: Value) -> Result<T, GitHubError> {
        GitHubCall::new(self, Method::PATCH, path).body(body).json().await
    }

    /// Removes something. That it is not there is no error.
    pub(super) async fn remove(&self, path: &str) -> Result<(), GitHubError> {
        match GitHubCall::new(self, Method::DELETE, path).send().await {
            Err(error) if error.status() == Some(404) => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// Waits while a rate limit forbids every call of the account, those of git too.
    pub(super) async fn wait_for_limits(&self) -> Result<(), GitHubError> {
        let waited = self.throttle.wait(self.pace.longest_wait).await;
        waited.map_err(|pause| self.rate_limited("git", pause))
    }

    /// Makes all calls wait after a rate limit. Fails if the pause is longer than the caller may wait.
    pub(super) async fn begin_pause(
        &self,
        waits: &mut LimitWaits,
        call: &str,
        asked: Option<Duration>,
    ) -> Result<(), GitHubError> {
        let begun = waits.close(&self.throttle, &self.pace, asked).await;
        begun.map_err(|pause| self.rate_limited(call, pause))
    }

    fn rate_limited(&self, call: &str, pause: Duration) -> GitHubError {
        let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
        let now = self.clock.now();
        GitHubError::RateLimited {
            call: call.to_owned(),
            until: now.checked_add(pause).unwrap_or(Timestamp::MAX),
        }
    }

    /// Waits until git may push: GitHub counts pushes as writes. No other write is made while the guard lives.
    pub(super) async fn begin_push(&self) -> impl Drop + '_ {
        loop {
            match self.throttle.begin_write(&self.pace).await {
                Ok(guard) => return guard,
                Err(pause) => sleep(pause).await,
            }
        }
    }

    /// Like [`GitHubClient::begin_push`] for a claim. The limit of an hour does not hold a claim of this process back: if it is
    /// not renewed in time it is lost, and the work with it. A new one fails, since nothing could be done with it.
    pub(super) async fn begin_claim_push(&self, is_new: bool) -> Result<impl Drop + '_, GitHubError> {
        let turn = self.throttle.begin_claim(&self.pace, is_new).await;
        turn.map_err(|pause| self.rate_limited("git", pause))
    }

    /// The address of a path. GitHub Enterprise has REST at `/api/v3` and GraphQL at `/api/graphql`.
    fn url(&self, path: &str) -> String {
        match (path, self.api_url.strip_suffix("/v3")) {
            ("graphql", Some(root)) => format!("{root}/graphql"),
            (path, _) => format!("{}/{path}", self.api_url),
        }
    }

    /// Whether the server has the version of the API that ralph is written for. Old servers refuse unknown versions.
    async fn is_pinned(&self, token: &Secret) -> bool {
        let ask = async || {
            if self.api_url == PUBLIC_API {
                return true;
            }
            let request = self.http.get(self.url("versions")).bearer_auth(token.expose());
            match request.send().await {
                Ok(response) if response.status().is_success() => response
                    .json::<Vec<String>>()
                    .await
                    .is_ok_and(|versions| versions.iter().any(|version| version == API_VERSION)),
                Ok(_) | Err(_) => false,
            }
        };
        *self.is_pinned.get_or_init(ask).await
    }
}

/// One call.
pub(super) struct GitHubCall<'c> {
    client: &'c GitHubClient,
    method: Method,
    url: String,
    /// Method and path, for errors.
    pub(super) name: String,
    body: Option<Value>,
    /// Whether GitHub counts it as a write.
    writes: bool,
    /// Whether it may be repeated if it is unknown whether GitHub did it.
    repeatable: bool,
    /// The tag of an answer that need not be sent again.
    pub(super) known_tag: Option<HeaderValue>,
}

impl<'c> GitHubCall<'c> {
    pub(super) fn new(client: &'c GitHubClient, method: Method, path: &str) -> Self {
        let shown = path.split('?').next().unwrap_or(path);
        Self {
            client,
            url: client.url(path),
            name: format!("{method} /{shown}"),
            body: None,
            writes: method != Method::GET,
            // PATCH is not idempotent by its definition, but ralph only sets fields with it.
            repeatable: method.is_idempotent() || method == Method::PATCH,
            known_tag: None,
            method,
        }
    }

    pub(super) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(super) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Marks a POST that only reads.
    pub(super) fn reading(mut self) -> Self {
        self.writes = false;
        self.repeatable()
    }

    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, GitHubError> {
        let response = self.send().await?;
        read(&self.name, response).await
    }

    pub(super) async fn send(&self) -> Result<Response, GitHubError> {
        self.send_as(None).await
    }

    /// Sends the call as the App with this JWT, else with a token, again after rate limits and failures that may pass.
    async fn send_as(&self, jwt: Option<&Secret>) -> Result<Response, GitHubError> {
        let client = self.client;
        let (mut waits, mut failed) = (LimitWaits::begin(), 0);
        let mut has_replaced_token = false;
        loop {
            let waited = client.throttle.wait(waits.left(&client.pace)).await;
            waited.map_err(|pause| self.rate_limited(pause))?;
            // Asked for each time: a token of an App may expire while a call waits.
            let answer = if let Some(jwt) = jwt {
                self.send_once(jwt, false).await
            } else {
                let token = Box::pin(client.token()).await?;
                let answer = self.send_with(&token).await;
                // A refused token was not used for anything, so any call may be repeated, once.
                if !has_replaced_token
                    && answer.as_ref().is_err_and(CallFailure::is_refused_token)
                    && client.replace_token(&token).await
                {
                    has_replaced_token = true;
                    continue;
                }
                answer
            };
            let pause = match answer {
                Ok(response) => return Ok(response),
                Err(CallFailure::Limited(asked)) => {
                    client.begin_pause(&mut waits, &self.name, asked).await?;
                    continue;
                }
                Err(CallFailure::Failed(error)) => {
                    failed += 1;
                    if failed >= ATTEMPTS || !self.may_repeat(&error) {
                        return Err(error);
                    }
                    client.pace.first_pause.saturating_mul(1 << failed)
                }
            };
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
    }

    /// Sends the call with this token, when it is its turn.
    async fn send_with(&self, token: &Secret) -> Result<Response, CallFailure> {
        let client = self.client;
        let is_pinned = client.is_pinned(token).await;
        let _one_write_at_a_time = if self.writes {
            let turn = client.throttle.begin_write(&client.pace).await;
            Some(turn.map_err(|pause| CallFailure::Failed(self.rate_limited(pause)))?)
        } else {
            None
        };
        self.send_once(token, is_pinned).await
    }

    /// A call that did not arrive may be repeated. One that may have had an effect only if a second time is harmless.
    fn may_repeat(&self, error: &GitHubError) -> bool {
        match error {
            GitHubError::Unreachable { source, .. } => source.is_connect() || self.repeatable,
            error => error.is_ambiguous() && self.repeatable,
        }
    }

    fn rate_limited(&self, pause: Duration) -> GitHubError {
        self.client.rate_limited(&self.name, pause)
    }

    async fn send_once(&self, token: &Secret, is_pinned: bool) -> Result<Response, CallFailure> {
        let response = self.request(token, is_pinned).send().await;
        let response = response.map_err(|source| {
            CallFailure::Failed(GitHubError::Unreachable {
                call: self.name.clone(),
                source: source.without_url(),
            })
        })?;
        let is_unchanged = self.known_tag.is_some() && response.status() == StatusCode::NOT_MODIFIED;
        if response.status().is_success() || is_unchanged {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    fn request(&self, token: &Secret, is_pinned: bool) -> RequestBuilder {
        let request = self.client.http.request(self.method.clone(), &self.url);
        let request = request
            .bearer_auth(token.expose())
            .header(ACCEPT, "application/vnd.github+json");
        let request = if is_pinned {
            request.header("X-GitHub-Api-Version", API_VERSION)
        } else {
            request
        };
        let request = match &self.known_tag {
            Some(tag) => request.header(IF_NONE_MATCH, tag),
            None => request,
        };
        match &self.body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    async fn refusal(&self, response: Response) -> CallFailure {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap_or_default();
        if is_rate_limit(status, &headers, &text) {
            return CallFailure::Limited(asked_pause(&headers, self.client.now()));
        }
        let needed = headers.get("x-accepted-github-permissions");
        CallFailure::Failed(GitHubError::Refused {
            call: self.name.clone(),
            status: status.as_u16(),
            message: error_message(&text),
            needed: needed.and_then(|value| Some(value.to_str().ok()?.to_owned())),
        })
    }
}

pub(super) fn too_many_pages(path: &str) -> GitHubError {
    GitHubError::Response {
        call: format!("GET /{path}"),
        source: format!("the list has more than {MAX_PAGES} pages").into(),
    }
}
