//! Injected faults.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Refusal;

/// The longest request body that is recorded.
const LONGEST: usize = 64 << 20;

/// A fault of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The response has this error status.
    Status(u16),
    /// The response is 429, with `Retry-After` in seconds.
    Wait(u32),
    /// The request is handled, but the response is an error.
    HandledThenError,
    /// The request is handled, but there is no response.
    HandledThenHangs,
    /// The response has an unknown field.
    NewField,
    /// The response cannot be decoded.
    Nonsense,
    /// There is no response.
    Hangs,
    /// The WebSocket breaks in the middle.
    BreaksOff,
}

impl Fault {
    /// The status of the response, if that is all there is to it.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(*status),
            _ => None,
        }
    }

    pub async fn instead_of_an_answer(&self) -> Option<Response> {
        match self {
            Self::Status(status) => Some(Refusal(*status, "injected fault".to_owned()).into_response()),
            Self::Wait(seconds) => {
                let mut response = Refusal(429, "Too Many Requests".to_owned()).into_response();
                response.headers_mut().insert("retry-after", (*seconds).into());
                Some(response)
            }
            Self::Nonsense => Some((StatusCode::OK, "<html>").into_response()),
            Self::Hangs => std::future::pending().await,
            Self::HandledThenError | Self::HandledThenHangs | Self::NewField | Self::BreaksOff => None,
        }
    }

    /// The response after the request was handled.
    pub async fn instead_of(&self, answer: Response) -> Response {
        match self {
            Self::HandledThenError => Refusal(502, "Bad Gateway".to_owned()).into_response(),
            Self::HandledThenHangs => std::future::pending().await,
            Self::NewField => with_new_field(answer).await,
            _ => answer,
        }
    }
}

async fn with_new_field(answer: Response) -> Response {
    let (status, bytes) = (
        answer.status(),
        to_bytes(answer.into_body(), LONGEST).await.unwrap(),
    );
    let mut value: Value = serde_json::from_slice(&bytes).unwrap();
    value["aFieldOfNextYear"] = json!({ "with": ["more", 1, null] });
    (status, Json(value)).into_response()
}

/// The request, and its body if it is JSON.
pub async fn recorded(request: Request) -> (Request, Value) {
    let is_json = request
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json {
        return (request, Value::Null);
    }
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, LONGEST).await.unwrap();
    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    (Request::from_parts(parts, Body::from(bytes)), value)
}
