//! HTTP calls to Daytona, with retries.

use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::sleep;

use super::error::DaytonaError;
use crate::secret::Secret;

/// The SDK version that ralph claims to be. Daytona sends the two output streams of sessions apart to this version.
const SDK_VERSION: &str = "0.226.1";

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a call is tried, and the bounds of the pauses in between.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// The longest response that is decoded, in bytes. What a script prints in a sandbox comes from there.
const MAX_BODY: usize = 64 << 20;

/// How many characters of Daytona's message an error contains.
const MAX_MESSAGE: usize = 300;

/// An HTTP client for the paths below one URL: those of the control plane, or of the toolbox in a sandbox.
#[derive(Clone, Debug)]
pub(super) struct DaytonaClient {
    http: Client,
    key: Secret,
    pub(super) url: String,
}

impl DaytonaClient {
    /// `read_timeout` is how long Daytona may send nothing in the middle of a response.
    pub(super) fn new(url: &str, key: Secret, read_timeout: Duration) -> Result<Self, DaytonaError> {
        let http = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(read_timeout)
            // WebSockets of the toolbox need a connection upgrade, which HTTP/2 does not have.
            .http1_only()
            .build()
            .map_err(|error| DaytonaError::unreachable("create the HTTP client", error))?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { http, key, url })
    }

    pub(super) fn get(&self, path: &str) -> DaytonaCall {
        self.call(Method::GET, path)
    }

    /// A call with a JSON body.
    pub(super) fn post(&self, path: &str, body: Value) -> DaytonaCall {
        self.call(Method::POST, path).body(body)
    }

    /// Deletes an object. It is fine if it does not exist.
    pub(super) async fn delete(&self, path: &str) -> Result<(), DaytonaError> {
        match self.call(Method::DELETE, path).done().await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }

    /// A call with the headers that every call has.
    pub(super) fn call(&self, method: Method, path: &str) -> DaytonaCall {
        let url = format!("{}/{path}", self.url);
        let (name, repeatable) = (format!("{method} {}", url_path(&url)), method.is_idempotent());
        let request = self
            .http
            .request(method, url)
            .bearer_auth(self.key.expose())
            .header("X-Daytona-Source", "ralph")
            .header("X-Daytona-SDK-Version", SDK_VERSION);
        DaytonaCall {
            request,
            name,
            repeatable,
        }
    }
}

/// A call that is not sent yet.
#[derive(Debug)]
pub(super) struct DaytonaCall {
    request: RequestBuilder,
    /// Method and path, for errors.
    name: String,
    /// Whether it may be repeated if it is unknown whether Daytona received it.
    repeatable: bool,
}

impl DaytonaCall {
    /// A call outside the paths of the API, without the API key.
    pub(super) fn new(request: RequestBuilder, name: String) -> Self {
        Self {
            request,
            name,
            repeatable: false,
        }
    }

    /// Changes the request.
    pub(super) fn with(mut self, change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Self {
        self.request = change(self.request);
        self
    }

    pub(super) fn query(self, query: &[(&str, &str)]) -> Self {
        self.with(|request| request.query(query))
    }

    /// Sets a JSON body. Fields that are `null` are left out.
    pub(super) fn body(self, mut body: Value) -> Self {
        if let Some(fields) = body.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        self.with(|request| request.json(&body))
    }

    /// Allows to repeat a call whose method does not imply it.
    pub(super) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Sends the call and decodes the response.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, DaytonaError> {
        let call = self.name.clone();
        let (mut response, mut body) = (self.send().await?, Vec::<u8>::new());
        while let Some(piece) = response
            .chunk()
            .await
            .map_err(|error| DaytonaError::unreachable(&call, error))?
        {
            body.extend_from_slice(&piece);
            if body.len() > MAX_BODY {
                return Err(DaytonaError::response(call, "it is too long"));
            }
        }
        serde_json::from_slice(&body).map_err(|error| DaytonaError::Response {
            call,
            source: error.into(),
        })
    }

    /// Sends the call and ignores the body of the response.
    pub(super) async fn done(self) -> Result<(), DaytonaError> {
        self.send().await.map(drop)
    }

    /// Sends the call, with retries. A streamed body is sent once. A call that did not arrive, or was rejected by a rate
    /// limit, may always be repeated.
    pub(super) async fn send(self) -> Result<Response, DaytonaError> {
        let (mut request, mut failed) = (self.request, 0);
        loop {
            let next = request.try_clone();
            let (error, pause) = match send_once(request, &self.name).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            failed += 1;
            let may_repeat = error.is_transient() && (self.repeatable || error.had_no_effect());
            request = match next {
                Some(next) if may_repeat && failed < ATTEMPTS => next,
                Some(_) | None => return Err(error),
            };
            sleep(pause.unwrap_or_else(|| backoff(failed)).min(MAX_PAUSE)).await;
        }
    }
}

/// Sends a call once. The error comes with the pause that Daytona asks for, if any.
async fn send_once(
    request: RequestBuilder,
    call: &str,
) -> Result<Response, (DaytonaError, Option<Duration>)> {
    let response = request.send().await;
    let response = response.map_err(|error| (DaytonaError::unreachable(call, error), None))?;
    let status = response.status();
    if status.is_success() || status.is_informational() {
        return Ok(response);
    }
    let pause = response.headers().get(RETRY_AFTER);
    let pause = pause.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    let text = response.text().await.unwrap_or_default();
    let refused = DaytonaError::Refused {
        call: call.to_owned(),
        status: status.as_u16(),
        message: error_message(&text),
    };
    Err((refused, pause.map(Duration::from_secs)))
}

/// Exponential backoff with jitter.
fn backoff(failed: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << failed.min(16)).min(MAX_PAUSE);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// The message in the body of an error response: one text, or one for each invalid field.
fn error_message(text: &str) -> String {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let message = match &body["message"] {
        Value::Array(fields) => fields.iter().map(Value::as_str).collect(),
        message => message.as_str().or(body["error"].as_str()).map(|one| vec![one]),
    };
    let message = message.map_or_else(|| text.trim().to_owned(), |parts: Vec<&str>| parts.join("; "));
    message.chars().take(MAX_MESSAGE).collect()
}

fn url_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("/", |at| &rest[at..])
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one(r#"{"message":"no such sandbox","error":"Not Found"}"#, "no such sandbox")]
    #[case::several(
        r#"{"message":["cpu must be an integer","name is long"]}"#,
        "cpu must be an integer; name is long"
    )]
    #[case::short(r#"{"error":"Unauthorized"}"#, "Unauthorized")]
    #[case::of_a_proxy("<html>bad gateway</html>", "<html>bad gateway</html>")]
    fn the_message_of_an_error_is_found(#[case] body: &str, #[case] message: &str) {
        assert_eq!(error_message(body), message);
    }

    #[test]
    fn pauses_are_bounded() {
        for failed in 1..100 {
            assert!((FIRST_PAUSE..=MAX_PAUSE).contains(&backoff(failed)));
        }
    }

    #[test]
    fn debug_output_does_not_contain_the_key() {
        let (url, key) = ("http://127.0.0.1:1/api", Secret::new("dtn_0123456789"));
        let client = DaytonaClient::new(url, key, Duration::from_secs(1)).unwrap();
        let call = client.get("sandbox");
        assert!(!format!("{client:?} {call:?}").contains("dtn_0123456789"));
    }
}
