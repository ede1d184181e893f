//! The page that a login link leads to.
//!
//! Opening the link does nothing: programs that preview links open it too. Its button spends the secret, and the browser goes on
//! to an address without it.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::json;

use crate::secret::Secret;

use super::Page;
use super::client::{ApiClient, PageError, parameters};

/// The longest form, in bytes.
const LONGEST_FORM: usize = 4096;

#[derive(Deserialize)]
struct LoginForm {
    secret: Option<Secret>,
}

fn parse(query: &str) -> Option<Secret> {
    parameters::<LoginForm>(query)?.secret
}

/// A page with a button that logs in with the secret of the link.
pub(super) fn form(query: &str) -> Result<Response, PageError> {
    let secret = parse(query);
    let secret = secret.as_ref().map(Secret::expose);
    let page = Page::new("login.html", "Log in")
        .with("secret", secret)
        .with("problem", ());
    respond(&page)
}

fn respond(page: &Page) -> Result<Response, PageError> {
    let mut response = page.respond()?;
    // Without any referrer a browser sends the form with `Origin: null`, which is refused. This one has no query.
    let referrer = HeaderValue::from_static("strict-origin");
    response.headers_mut().insert(header::REFERRER_POLICY, referrer);
    Ok(response)
}

/// Logs in, and goes on to the first page.
pub(super) async fn log_in(client: &ApiClient, request: Request) -> Result<Response, PageError> {
    let body = to_bytes(request.into_body(), LONGEST_FORM)
        .await
        .unwrap_or_default();
    let secret = parse(&String::from_utf8_lossy(&body)).unwrap_or_else(|| Secret::new(""));
    let login = json!({"secret": secret.expose()});
    match client.ask(Method::POST, "/api/login", Some(&login)).await {
        Ok(answer) => {
            let mut response = Redirect::to("/").into_response();
            if let Some(cookie) = answer.headers().get(header::SET_COOKIE) {
                response.headers_mut().insert(header::SET_COOKIE, cookie.clone());
            }
            Ok(response)
        }
        Err(error) => {
            let page = Page::new("login.html", "Log in").with("secret", ());
            let mut response = respond(&page.with("problem", error.problem()))?;
            *response.status_mut() = match error.status() {
                StatusCode::UNAUTHORIZED => StatusCode::FORBIDDEN,
                status => status,
            };
            Ok(response)
        }
    }
}
