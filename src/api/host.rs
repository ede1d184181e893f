//! What the host has: models and credentials.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assembly::stored_credentials::{
    check_credential, credential_statuses, remove_credential, store_credential,
};
use crate::assembly::{AssemblyContext, CredentialStatus, ModelOverview, SettingOverview, SilentReporter};
use crate::secret::Secret;

use super::Api;
use super::extract::{JsonBody, NamedCredential};
use super::problem::Problem;

/// The model profiles of the configuration.
#[derive(Serialize, JsonSchema)]
pub(super) struct ModelList {
    /// The profiles, by name.
    models: Vec<ModelOverview>,
}

pub(super) async fn models(State(api): State<Arc<Api>>) -> Result<Json<ModelList>, Problem> {
    Ok(Json(ModelList {
        models: ModelOverview::all(&api.context())?,
    }))
}

/// The configuration of the service.
#[derive(Serialize, JsonSchema)]
pub(super) struct SettingList {
    /// Every setting with where it comes from, by key.
    settings: Vec<SettingOverview>,
}

pub(super) async fn settings(State(api): State<Arc<Api>>) -> Result<Json<SettingList>, Problem> {
    Ok(Json(SettingList {
        settings: SettingOverview::all(&api.context())?,
    }))
}

/// The kinds of credentials.
#[derive(Serialize, JsonSchema)]
pub(super) struct CredentialList {
    /// Each with whether it is stored. The values are never shown.
    credentials: Vec<CredentialStatus>,
}

pub(super) async fn credentials(State(api): State<Arc<Api>>) -> Result<Json<CredentialList>, Problem> {
    Ok(Json(CredentialList {
        credentials: credential_statuses(&api.context()).await?,
    }))
}

/// A credential to store.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CredentialValue {
    /// The key or token.
    #[schemars(with = "String")]
    value: Secret,
}

pub(super) async fn store(
    State(api): State<Arc<Api>>,
    NamedCredential(name): NamedCredential,
    JsonBody(credential): JsonBody<CredentialValue>,
) -> Result<StatusCode, Problem> {
    store_credential(&api.context(), &name, credential.value.expose()).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    NamedCredential(name): NamedCredential,
) -> Result<StatusCode, Problem> {
    remove_credential(&api.context(), &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn check(
    State(api): State<Arc<Api>>,
    NamedCredential(name): NamedCredential,
) -> Result<StatusCode, Problem> {
    check_credential(&api.context(), &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Api {
    /// The context of operations that are not about one run.
    pub(super) fn context(&self) -> AssemblyContext {
        AssemblyContext::new(self.surroundings.clone(), Arc::new(SilentReporter))
    }
}
