//! One table of operations, from which the router and the OpenAPI document are made.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Router};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::assembly::DashboardMode;
use crate::store::ApiScope;

use super::Api;
use super::access::Caller;
use super::problem::Problem;

/// The longest body, in bytes. A task is the longest one.
const LONGEST_BODY: usize = 1024 * 1024;

/// Adds the schema of a type to the document, and refers to it.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One operation of the API.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Its name in the document.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// The scope that a caller needs; `None` if everyone may call it.
    pub(super) scope: Option<ApiScope>,
    /// The mode that the service needs.
    pub(super) mode: DashboardMode,
    pub(super) parameters: Option<SchemaOf>,
    pub(super) body: Option<SchemaOf>,
    pub(super) status: StatusCode,
    pub(super) result: Option<SchemaOf>,
    /// The content type of the result.
    pub(super) content_type: &'static str,
    handler: MethodRouter<Arc<Api>>,
}

impl Operation {
    /// An operation that needs the scope `read`.
    pub(super) fn new<H, T>(
        method: Method,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        let filter = match method {
            Method::POST => MethodFilter::POST,
            Method::PUT => MethodFilter::PUT,
            Method::PATCH => MethodFilter::PATCH,
            Method::DELETE => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        Self {
            path,
            id,
            summary,
            scope: Some(ApiScope::Read),
            mode: DashboardMode::Autonomous,
            parameters: None,
            body: None,
            status: StatusCode::OK,
            result: None,
            content_type: "application/json",
            handler: on(filter, handler),
            method,
        }
    }

    pub(super) fn scope(mut self, scope: Option<ApiScope>) -> Self {
        self.scope = scope;
        self
    }

    pub(super) fn mode(mut self, mode: DashboardMode) -> Self {
        self.mode = mode;
        self
    }

    pub(super) fn parameters<T: JsonSchema>(mut self) -> Self {
        self.parameters = Some(T::json_schema);
        self
    }

    pub(super) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    pub(super) fn returns<T: JsonSchema>(mut self) -> Self {
        self.result = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Returns a text of this content type.
    pub(super) fn returns_text(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self.returns::<String>()
    }

    pub(super) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }
}

/// A router with these operations, in a service with this mode. Each checks the scope of the caller.
pub(super) fn router(operations: Vec<Operation>, mode: DashboardMode) -> Router<Arc<Api>> {
    let mut router = Router::new();
    for operation in operations {
        let handler = match operation.scope {
            None => operation.handler,
            Some(scope) => {
                let needed = operation.mode;
                let check = move |caller: Extension<Caller>, request: Request, next: Next| async move {
                    let checked = caller
                        .require(scope)
                        .and_then(|()| caller.require_path(request.uri().path()))
                        .and_then(|()| require_mode(mode, needed));
                    match checked {
                        Ok(()) => next.run(request).await,
                        Err(problem) => problem.into_response(),
                    }
                };
                operation.handler.route_layer(from_fn(check))
            }
        };
        router = router.route(operation.path, handler);
    }
    let no_method = || async { Problem::new(StatusCode::METHOD_NOT_ALLOWED, "there is no such operation") };
    let no_path = || async { Problem::new(StatusCode::NOT_FOUND, "there is no such path") };
    router
        .method_not_allowed_fallback(no_method)
        .fallback(no_path)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
}

/// Refuses what a service in this mode does not do, for any caller.
pub(super) fn require_mode(mode: DashboardMode, needed: DashboardMode) -> Result<(), Problem> {
    if mode >= needed {
        return Ok(());
    }
    let (has, needs) = (mode.name(), needed.name());
    let detail = format!("this needs the mode `{needs}`, and the service is in the mode `{has}`");
    Err(Problem::forbidden(detail).with_hint(format!(
        "set dashboard.mode = \"{needs}\" in your user file and start the service again"
    )))
}
