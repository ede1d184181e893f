//! Links that let others look at one run, and at nothing else.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::ApiSecretKind;

use super::Api;
use super::access::new_secret;
use super::extract::{JsonBody, NamedRun};
use super::problem::Problem;

/// The longest life of a link, in hours: 30 days.
const MOST_HOURS: u32 = 30 * 24;

const HOUR: Duration = Duration::from_secs(60 * 60);

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
