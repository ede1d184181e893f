//! HTTP calls to Daytona, with retries.

use std::io;
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::DaytonaError;
use super::wire::{DaytonaErrorBody, DaytonaErrorMessage};
use crate::secret::Secret;

/// The SDK version that ralph claims to be. Daytona sends the two output streams of sessions apart to this version.
const SDK_VERSION: &str = "0.226.1";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a call is tried, and the bounds of the pauses in between.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// How many characters of Daytona's message an error contains.
const MAX_MESSAGE: usize = 300;

/// Whether a call may be repeated if it is unknown whether Daytona received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallRetry {
    Safe,
    Unsafe,
}

/// An HTTP client with one API key.
#[derive(Clone, Debug)]
pub(super) struct DaytonaClient {
    client: Client,
    key: Secret,
}

impl DaytonaClient {
    /// `read_timeout` is how long Daytona may send nothing in the middle of a response.
    pub(super) fn new(key: Secret, read_timeout: Duration) -> Result<Self, DaytonaError> {
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(read_timeout)
            // WebSockets of the toolbox need a connection upgrade, which HTTP/2 does not have.
            .http1_only()
            .build()
            .map_err(|source| DaytonaError::Unreachable {
                call: "create the HTTP client".to_owned(),
                source,
            })?;
        Ok(Self { client, key })
    }

    /// A call with the headers that every call has.
    pub(super) fn request(&self, method: &Method, url: &str) -> DaytonaCall {
        let builder = self
            .client
            .request(method.clone(), url)
            .bearer_auth(self.key.expose())
            .header("X-Daytona-Source", "ralph")
            .header("X-Daytona-SDK-Version", SDK_VERSION);
        DaytonaCall {
            builder,
            name: format!("{method} {}", url_path(url)),
        }
    }
}

/// A call that is not sent yet.
#[derive(Debug)]
pub(super) struct DaytonaCall {
    builder: RequestBuilder,
    /// Method and path, for errors.
    name: String,
}

impl DaytonaCall {
    /// Changes the request.
    pub(super) fn with(mut self, change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Self {
        self.builder = change(self.builder);
        self
    }

    /// Sends the call and decodes the response.
    pub(super) async fn json<T: DeserializeOwned>(self, retry: CallRetry) -> Result<T, DaytonaError> {
        let call = self.name.clone();
        let body = self.send(retry).await?.bytes().await;
        let body = body.map_err(|source| unreachable(&call, source))?;
        serde_json::from_slice(&body).map_err(|error| DaytonaError::Response {
            call,
            source: io::Error::new(io::ErrorKind::InvalidData, error),
        })
    }

    /// Sends the call and ignores the body of the response.
    pub(super) async fn done(self, retry: CallRetry) -> Result<(), DaytonaError> {
        self.send(retry).await.map(drop)
    }

    /// Like [`DaytonaCall::done`], for a deletion: it is fine if the object does not exist.
    pub(super) async fn done_or_not_found(self) -> Result<(), DaytonaError> {
        match self.done(CallRetry::Safe).await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }

    /// Sends the call, with retries. A streamed body is sent once.
    pub(super) async fn send(self, retry: CallRetry) -> Result<Response, DaytonaError> {
        let mut builder = self.builder;
        for failed in 1..=ATTEMPTS {
            let next = builder.try_clone();
            let (error, pause) = match send_once(builder, &self.name).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            match next.filter(|_| failed < ATTEMPTS && may_retry(&error, retry)) {
                Some(next) => builder = next,
                None => return Err(error),
            }
            sleep(pause.unwrap_or_else(|| backoff(failed)).min(MAX_PAUSE)).await;
        }
        Err(DaytonaError::Response {
            call: self.name,
            source: io::ErrorKind::TimedOut.into(),
        })
    }
}

/// Sends a call once. The error comes with the pause that Daytona asks for, if any.
async fn send_once(
    builder: RequestBuilder,
    call: &str,
) -> Result<Response, (DaytonaError, Option<Duration>)> {
    let response = builder.send().await;
    let response = response.map_err(|source| (unreachable(call, source), None))?;
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

/// A call that did not arrive, or was rejected by a rate limit, may always be repeated.
fn may_retry(error: &DaytonaError, retry: CallRetry) -> bool {
    match error {
        DaytonaError::Unreachable { source, .. } => source.is_connect() || retry == CallRetry::Safe,
        DaytonaError::Refused { status, .. } => {
            *status == 429 || (*status >= 500 && retry == CallRetry::Safe)
        }
        DaytonaError::Response { .. } | DaytonaError::State { .. } | DaytonaError::Stream { .. } => false,
    }
}

/// Exponential backoff with jitter.
fn backoff(failed: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << failed.min(16)).min(MAX_PAUSE);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

fn unreachable(call: &str, source: reqwest::Error) -> DaytonaError {
    DaytonaError::Unreachable {
        call: call.to_owned(),
        source: source.without_url(),
    }
}

fn error_message(text: &str) -> String {
    let message = match serde_json::from_str::<DaytonaErrorBody>(text) {
        Ok(DaytonaErrorBody {
            message: Some(DaytonaErrorMessage::One(message)),
            ..
        }) => message,
        Ok(DaytonaErrorBody {
            message: Some(DaytonaErrorMessage::Several(messages)),
            ..
        }) => messages.join("; "),
        Ok(DaytonaErrorBody {
            error: Some(error), ..
        }) => error,
        Ok(_) | Err(_) => text.trim().to_owned(),
    };
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
        let client = DaytonaClient::new(Secret::new("dtn_0123456789"), Duration::from_secs(1)).unwrap();
        let call = client.request(&Method::GET, "http://127.0.0.1:1/api/sandbox");
        assert!(!format!("{client:?} {call:?}").contains("dtn_0123456789"));
    }
}
