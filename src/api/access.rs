//! Who asks: a token, or the session of a browser.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, header};

use crate::id::RunId;
use crate::secret::Secret;
use crate::store::{ApiScope, ApiSecretKind, Store};
use crate::text::error_chain;

use super::problem::Problem;

/// How long a login link can be used.
pub const LOGIN_LINK: Duration = Duration::from_secs(15 * 60);

/// How long a login session lasts.
pub(super) const SESSION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The cookie with the session.
pub(super) const SESSION_COOKIE: &str = "ralph_session";

/// How many logins can be tried at once, and how long until one more can.
const LOGIN_BURST: u32 = 5;
const LOGIN_INTERVAL: Duration = Duration::from_secs(10);

/// A new random secret for a token, a session or a login link.
pub fn new_secret() -> Result<Secret, String> {
    use base64::Engine as _;
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system gives no randomness: {error}"))?;
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    Ok(Secret::new(format!("ralph_{text}")))
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The name of the token.
    pub(super) name: String,
    pub(super) scope: ApiScope,
    /// The only run that it may look at.
    pub(super) run: Option<RunId>,
    /// Whether a cookie says so, which a browser also sends when another page makes it.
    pub(super) by_cookie: bool,
    /// Whether a proxy passed the request on, so that it may come from another host.
    pub(super) is_forwarded: bool,
    pub(super) secret: Secret,
}

/// What also a caller may use that may only look at one run. The socket checks each run.
const OF_ANY_CALLER: [&str; 3] = ["/api/session", "/api/logout", "/api/events"];

/// What proxies add to requests. Anyone can send these too, so they only ever forbid something.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

impl Caller {
    /// Finds who asks: by the token in `Authorization`, else by the session in the cookie.
    pub(super) async fn find(store: &Store, headers: &HeaderMap) -> Result<Self, Problem> {
        let (secret, kind) = match (bearer(headers)?, cookie(headers)) {
            (Some(token), _) => (token, ApiSecretKind::Token),
            (None, Some(session)) => (session, ApiSecretKind::Session),
            (None, None) => return Err(unauthorized("the request has no token")),
        };
        let Some(found) = store.api_secret(&secret, kind).await? else {
            return Err(unauthorized("the token or session is unknown or expired"));
        };
        Ok(Self {
            name: found.name,
            scope: found.scope,
            run: found.run,
            by_cookie: kind == ApiSecretKind::Session,
            is_forwarded: FORWARDED.iter().any(|name| headers.contains_key(*name)),
            secret,
        })
    }

    /// Whether the token or session still exists. An unreadable store does not end it.
    pub(super) async fn is_admitted(&self, store: &Store) -> bool {
        let kind = if self.by_cookie {
            ApiSecretKind::Session
        } else {
            ApiSecretKind::Token
        };
        match store.api_secret(&self.secret, kind).await {
            Ok(found) => found.is_some(),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "cannot check an API token again");
                true
            }
        }
    }

    /// Refuses a caller that may only look at one run, if the path is not about that run.
    pub(super) fn require_path(&self, path: &str) -> Result<(), Problem> {
        let of_run = path
            .strip_prefix("/api/runs/")
            .and_then(|rest| rest.split('/').next());
        match of_run {
            _ if self.run.is_none() || OF_ANY_CALLER.contains(&path) => Ok(()),
            Some(run) => self.require_run(run),
            None => self.require_run(""),
        }
    }

    /// Refuses a caller that may only look at another run.
    pub(super) fn require_run(&self, run: &str) -> Result<(), Problem> {
        match &self.run {
            Some(own) if own.as_str() != run => {
                let detail = format!("this login may only look at run `{own}`");
                Err(Problem::forbidden(detail).with_hint("ask the person who shared the run for a login"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a caller with a smaller scope.
    pub(super) fn require(&self, scope: ApiScope) -> Result<(), Problem> {
        if self.scope >= scope {
            return Ok(());
        }
        let (has, needs) = (self.scope.name(), scope.name());
        Err(Problem::forbidden(format!(
            "this needs the scope `{needs}`, and the token has `{has}`"
        ))
        .with_hint(format!(
            "`ralph api-token create NAME --scope {needs}` creates a token"
        )))
    }
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail).with_hint(
        "send `Authorization: Bearer TOKEN`; `ralph api-token create NAME` on the host of the service creates one",
    )
}

fn bearer(headers: &HeaderMap) -> Result<Option<Secret>, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let token = value.to_str().ok().and_then(|value| value.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(Secret::new(token.trim()))),
        _ => Err(unauthorized("`Authorization` is not `Bearer TOKEN`")),
    }
}

fn cookie(headers: &HeaderMap) -> Option<Secret> {
    let values = headers.get_all(header::COOKIE).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';'));
    let session = pairs.find_map(|pair| pair.trim().strip_prefix(SESSION_COOKIE)?.strip_prefix('='));
    session.map(Secret::new)
}

/// Limits how often a login can be tried, for all clients together: no address of a client can be trusted behind a proxy.
pub(super) struct LoginLimit(Mutex<LoginBucket>);

struct LoginBucket {
    left: u32,
    since: Instant,
}

impl Default for LoginLimit {
    fn default() -> Self {
        Self(Mutex::new(LoginBucket {
            left: LOGIN_BURST,
            since: Instant::now(),
        }))
    }
}

impl LoginLimit {
    /// Takes one try.
    pub(super) fn take(&self) -> Result<(), Problem> {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while bucket.left < LOGIN_BURST && bucket.since.elapsed() >= LOGIN_INTERVAL {
            bucket.left += 1;
            bucket.since += LOGIN_INTERVAL;
        }
        if bucket.left == LOGIN_BURST {
            bucket.since = Instant::now();
        }
        if bucket.left == 0 {
            let wait = LOGIN_INTERVAL.as_secs();
            return Err(
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many logins were tried")
                    .with_hint(format!("try again in {wait} s")),
            );
        }
        bucket.left -= 1;
        Ok(())
    }
}
