//! Health, login and logout.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assembly::DashboardMode;
use crate::secret::Secret;
use crate::store::{ApiScope, ApiSecret, ApiSecretKind};

use super::access::{SESSION, SESSION_COOKIE, new_secret};
use super::extract::JsonBody;
use super::problem::Problem;
use super::{Api, Caller};

/// The service answers.
#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    /// Always `ok`.
    status: &'static str,
}

pub(super) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// The secret of a login link. It can be used once.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginRequest {
    /// The secret.
    #[schemars(with = "String")]
    secret: Secret,
}

/// Who asks.
#[derive(Serialize, JsonSchema)]
pub(super) struct Session {
    /// The name of the token or of the login.
    name: String,
    /// What it may do.
    scope: ApiScope,
    /// How much the service lets callers ask of runs.
    mode: DashboardMode,
    /// The only run that it may look at; `null` if it may look at all of them.
    run: Option<String>,
}

pub(super) async fn login(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<LoginRequest>,
) -> Result<Response, Problem> {
    api.logins.take()?;
    let login = match api.store.spend_login(&request.secret).await? {
        Some(login) => Some(login),
        None => {
            api.store
                .api_secret(&request.secret, ApiSecretKind::Share)
                .await?
        }
    };
    let Some(login) = login else {
        let detail = "the login link is unknown, expired or used";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, detail)
            .with_hint("`ralph api-token login` prints a new link"));
    };
    let (secret, lifetime) = api.open_session(&login).await?;
    // A browser that came by TLS sends the cookie back only by TLS.
    let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes);
    let secure = match origin {
        Some(origin) if origin.starts_with(b"https://") => "; Secure",
        _ => "",
    };
    let cookie = format!(
        "{SESSION_COOKIE}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}",
        secret.expose(),
        lifetime.as_secs()
    );
    let session = Json(Session {
        name: login.name,
        scope: login.scope,
        mode: api.settings.mode,
        run: login.run.as_ref().map(ToString::to_string),
    });
    Ok(([(header::SET_COOKIE, cookie)], session).into_response())
}

impl Api {
    /// Stores a new session of this login. One of a shared link ends with the link.
    async fn open_session(&self, login: &ApiSecret) -> Result<(Secret, Duration), Problem> {
        let secret = new_secret().map_err(Problem::internal)?;
        let kind = ApiSecretKind::Session;
        let Some(run) = &login.run else {
            self.store
                .add_api_secret(&secret, kind, &login.name, login.scope, SESSION)
                .await?;
            return Ok((secret, SESSION));
        };
        let left = login.expires.duration_since(self.surroundings.now());
        let lifetime = Duration::try_from(left).unwrap_or(Duration::ZERO).min(SESSION);
        self.store.add_run_secret(&secret, kind, run, lifetime).await?;
        Ok((secret, lifetime))
    }
}

pub(super) async fn logout(State(api): State<Arc<Api>>, caller: Caller) -> Result<Response, Problem> {
    if caller.run.is_some() {
        // Others use the same link.
        api.store.end_session(&caller.secret).await?;
    } else {
        api.store.end_sessions(&caller.name).await?;
    }
    let cookie = format!("{SESSION_COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

pub(super) async fn session(State(api): State<Arc<Api>>, caller: Caller) -> Json<Session> {
    Json(Session {
        name: caller.name,
        scope: caller.scope,
        mode: api.settings.mode,
        run: caller.run.as_ref().map(ToString::to_string),
    })
}
