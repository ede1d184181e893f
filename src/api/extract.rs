//! What handlers take from a request. Everything that has another form is refused with a problem.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::id::RunId;
use crate::state::RunDir;

use super::problem::Problem;
use super::{Api, Caller};

/// The id of a run in the path.
pub(super) struct NamedId(pub(super) RunId);

impl FromRequestParts<Arc<Api>> for NamedId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _api: &Arc<Api>) -> Result<Self, Problem> {
        let name = path_parameter(parts, "run").await?;
        let unknown = |_| Problem::new(StatusCode::NOT_FOUND, "there is no such run");
        Ok(Self(RunId::parse(&name).map_err(unknown)?))
    }
}

/// The run that the path names, in a directory of this host.
pub(super) struct NamedRun(pub(super) RunDir);

impl FromRequestParts<Arc<Api>> for NamedRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let NamedId(id) = NamedId::from_request_parts(parts, api).await?;
        Ok(Self(api.surroundings.runs()?.open(&id)?))
    }
}

/// The number of an iteration in the path.
pub(super) struct NamedIteration(pub(super) u32);

impl FromRequestParts<Arc<Api>> for NamedIteration {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _api: &Arc<Api>) -> Result<Self, Problem> {
        let number = path_parameter(parts, "iteration").await?;
        let wrong = |_| Problem::bad_request("the number of an iteration is a number from 1");
        Ok(Self(number.parse().map_err(wrong)?))
    }
}

/// The name of a kind of credential in the path.
pub(super) struct NamedCredential(pub(super) String);

impl FromRequestParts<Arc<Api>> for NamedCredential {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _api: &Arc<Api>) -> Result<Self, Problem> {
        Ok(Self(path_parameter(parts, "credential").await?))
    }
}

async fn path_parameter(parts: &mut Parts, name: &str) -> Result<String, Problem> {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let params = params.map_err(|_| Problem::bad_request("the path is not UTF-8"))?;
    let found = params.iter().find(|(key, _)| *key == name);
    let value = found.map(|(_, value)| value.to_owned());
    value.ok_or_else(|| Problem::bad_request(format!("the path names no {name}")))
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _api: &Arc<Api>) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "the request has no token"))
    }
}

/// The parameters of the query.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Api>> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _api: &Arc<Api>) -> Result<Self, Problem> {
        let read = Query::<T>::try_from_uri(&parts.uri);
        let Query(value) = read.map_err(|error| Problem::bad_request(error.body_text()))?;
        Ok(Self(value))
    }
}

/// The body, as JSON.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Api>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        let read = |error: BytesRejection| Problem::new(error.status(), error.body_text());
        let body = Bytes::from_request(request, api).await.map_err(read)?;
        let wrong =
            |error: serde_json::Error| Problem::bad_request(format!("the body is not valid: {error}"));
        Ok(Self(serde_json::from_slice(&body).map_err(wrong)?))
    }
}
