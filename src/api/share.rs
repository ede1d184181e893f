//! Links that let others look at one run, and at nothing else. As in an
//! exported file, they find no secret there that this host knows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::id::RunId;
use crate::secret::Redactor;
use crate::store::ApiSecretKind;

use super::access::new_secret;
use super::extract::{JsonBody, NamedRun};
use super::problem::Problem;
use super::{Api, Caller};

/// The longest life of a link, in hours: 30 days.
const MOST_HOURS: u32 = 30 * 24;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// How long the secrets of this host are remembered: to read them, a keychain starts a program for each.
const SECRETS_KEPT: Duration = Duration::from_secs(30);

/// A link to make.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShareRequest {
    /// Hours until it ends.
    #[schemars(range(min = 1, max = 720))]
    hours: u32,
}

/// A link for looking at one run. It can be used by several people until it ends.
#[derive(Serialize, JsonSchema)]
pub(super) struct ShareLink {
    /// What follows the address of the service.
    path: String,
    /// When the link and all sessions that it opened end.
    expires: String,
}

pub(super) async fn create(
    State(api): State<Arc<Api>>,
    NamedRun(run): NamedRun,
    JsonBody(request): JsonBody<ShareRequest>,
) -> Result<(StatusCode, Json<ShareLink>), Problem> {
    if !(1..=MOST_HOURS).contains(&request.hours) {
        let detail = format!("a link lasts 1 to {MOST_HOURS} hours");
        return Err(Problem::bad_request(detail));
    }
    let secret = new_secret().map_err(Problem::internal)?;
    let (id, lifetime) = (&run.facts().id, HOUR * request.hours);
    api.store
        .add_run_secret(&secret, ApiSecretKind::Share, id, lifetime)
        .await?;
    let link = ShareLink {
        path: format!("/login?secret={}", secret.expose()),
        expires: (api.surroundings.now() + lifetime).to_string(),
    };
    Ok((StatusCode::CREATED, Json(link)))
}

pub(super) async fn revoke(
    State(api): State<Arc<Api>>,
    NamedRun(run): NamedRun,
) -> Result<StatusCode, Problem> {
    api.store.revoke_run_secrets(&run.facts().id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What removes secrets from the runs that visitors look at, and when it was made.
#[derive(Default)]
pub(super) struct VisitorRedactors(Mutex<HashMap<RunId, (Instant, Redactor)>>);

impl Api {
    /// Removes the secrets that this host knows from what a visitor gets. It knows none for a caller who may look at all runs.
    pub(super) async fn redactor(&self, caller: &Caller) -> Result<Redactor, Problem> {
        let Some(run) = &caller.run else {
            return Ok(Redactor::default());
        };
        let mut kept = self.visitor_redactors.0.lock().await;
        kept.retain(|_, (made, _)| made.elapsed() < SECRETS_KEPT);
        if let Some((_, redactor)) = kept.get(run) {
            return Ok(redactor.clone());
        }
        let dir = self.existing(run, self.run_here(run)?)?;
        let redactor = self.control(caller).redactor(&dir).await?;
        kept.insert(run.clone(), (Instant::now(), redactor.clone()));
        Ok(redactor)
    }

    async fn without_secrets(&self, caller: &Caller, response: Response) -> Result<Response, Problem> {
        let redactor = self.redactor(caller).await?;
        let failed = |error: serde_json::Error| Problem::internal(error.to_string());
        let (mut parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await;
        let body = body.map_err(|error| Problem::internal(error.to_string()))?;
        let value: Value = serde_json::from_slice(&body).map_err(failed)?;
        let value = redactor.redact_json(value).map_err(failed)?;
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(parts, Body::from(value.to_string())))
    }
}

/// Removes secrets from the JSON that a visitor gets. The exported file, which is HTML, has none.
pub(super) async fn hide_secrets(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let visitor = caller.filter(|caller| caller.run.is_some());
    let response = next.run(request).await;
    let json = HeaderValue::from_static("application/json");
    match visitor {
        Some(visitor) if response.headers().get(header::CONTENT_TYPE) == Some(&json) => {
            let hidden = api.without_secrets(&visitor, response).await;
            hidden.unwrap_or_else(IntoResponse::into_response)
        }
        _ => response,
    }
}
