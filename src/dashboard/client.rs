//! The API as the pages use it.

use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request};
use axum::http::{Extensions, HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Page;

/// The longest answer that a page is made of, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024 * 1024;

/// Asks the API in the name of the person who sent a request.
#[derive(Clone)]
pub(super) struct ApiClient {
    api: Next,
    /// Who asks, as the checks of the API found.
    extensions: Extensions,
    headers: HeaderMap,
}

impl ApiClient {
    pub(super) fn new(api: Next, request: &Request) -> Self {
        Self {
            api,
            extensions: request.extensions().clone(),
            headers: request.headers().clone(),
        }
    }

    /// What the API answers to a GET of this path.
    pub(super) async fn get(&self, path: &str) -> Result<Value, PageError> {
        let response = self.ask(Method::GET, path, None).await?;
        let body = to_bytes(response.into_body(), LONGEST_ANSWER).await;
        let body = body.map_err(|error| PageError::internal(error.to_string()))?;
        serde_json::from_slice(&body).map_err(|error| PageError::internal(error.to_string()))
    }

    /// The response of the API, if it is no problem.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response, PageError> {
        let mut request = Request::new(body.map_or_else(Body::empty, |body| Body::from(body.to_string())));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| PageError::not_found())?;
        *request.headers_mut() = self.headers.clone();
        *request.extensions_mut() = self.extensions.clone();
        let response = self.api.clone().run(request).await;
        if !response.status().is_client_error() && !response.status().is_server_error() {
            return Ok(response);
        }
        let status = response.status();
        let body = to_bytes(response.into_body(), LONGEST_ANSWER).await;
        let problem = body.ok().and_then(|body| serde_json::from_slice(&body).ok());
        Err(PageError {
            status,
            problem: problem.unwrap_or_else(|| json!({"detail": "the API gave no reason"})),
        })
    }

    /// A page for the person who asks.
    pub(super) async fn page(&self, template: &'static str, title: &str) -> Result<Page, PageError> {
        let session = self.get("/api/session").await?;
        Ok(Page::new(template, title).with("session", session))
    }
}

/// What a query has, or nothing if it is malformed.
pub(super) fn parameters<T: DeserializeOwned>(query: &str) -> Option<T> {
    let uri: Uri = format!("/?{query}").parse().ok()?;
    Some(Query::<T>::try_from_uri(&uri).ok()?.0)
}

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) struct PageError {
    status: StatusCode,
    /// The problem that the API answered with.
    problem: Value,
}

impl PageError {
    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such page")
    }

    pub(super) fn internal(detail: impl Serialize) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    fn new(status: StatusCode, detail: impl Serialize) -> Self {
        Self {
            status,
            problem: json!({"detail": detail}),
        }
    }

    /// The problem, as a value of a template.
    pub(super) fn problem(&self) -> Value {
        json!({
            "title": self.status.canonical_reason(),
            "detail": self.problem.get("detail"),
            "hint": self.problem.get("hint"),
        })
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// A page that says why. A person without a session is asked to log in.
    pub(super) fn page(&self) -> Response {
        if self.status == StatusCode::UNAUTHORIZED {
            return Redirect::to("/login").into_response();
        }
        let page = Page::new("error.html", "Error").with("problem", self.problem());
        let mut response = page.respond().unwrap_or_else(|_| {
            let text = [(header::CONTENT_TYPE, "text/plain")];
            (text, "the page cannot be shown").into_response()
        });
        *response.status_mut() = self.status;
        response
    }
}
