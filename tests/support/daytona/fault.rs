//! What can be made to go wrong.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::Refusal;

/// The longest body that is written down.
const LONGEST: usize = 64 << 20;

/// What goes wrong with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this status.
    Status(u16),
    /// It is refused with 429 and told to wait so many seconds.
    Wait(u32),
    /// It is heard and done, and then nobody says so.
    HeardButUnanswered,
    /// It is answered with something that is no answer.
    Nonsense,
    /// It is never answered.
    Hangs,
    /// The stream it opens breaks off in the middle.
    BreaksOff,
}

impl Fault {
    pub(super) async fn instead_of_an_answer(&self) -> Option<Response> {
        match self {
            Self::Status(status) => Some(Refusal(*status, "told to fail".to_owned()).into_response()),
            Self::Wait(seconds) => {
                let mut response = Refusal(429, "Too Many Requests".to_owned()).into_response();
                response.headers_mut().insert("retry-after", (*seconds).into());
                Some(response)
            }
            Self::Nonsense => Some((StatusCode::OK, "<html>").into_response()),
            Self::Hangs => {
                tokio::time::sleep(Duration::from_secs(600)).await;
                None
            }
            Self::HeardButUnanswered | Self::BreaksOff => None,
        }
    }
}

/// The request, and its body where that is JSON.
pub(super) async fn recorded(request: Request) -> (Request, Value) {
    let is_json = request
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json {
        return (request, Value::Null);
    }
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, LONGEST).await.unwrap();
    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    (Request::from_parts(parts, Body::from(bytes)), value)
}
