//! Calls to Daytona: one of them, and how often it is tried.

use std::io;
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::DaytonaError;
use super::wire::{Message, Refusal};
use crate::secret::Secret;

/// What an SDK of this age understands: the output of sessions comes with its two streams apart.
const SPEAKS: &str = "0.226.1";

const CONNECTING: Duration = Duration::from_secs(10);

/// How often a call is tried, and the longest waits before it is tried again.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// The most of Daytona's own words that an error repeats, in characters.
const LONGEST_MESSAGE: usize = 300;

/// Whether a call may be made again when nobody knows whether it was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Harmless,
    Harmful,
}

/// Speaks to Daytona with one key.
#[derive(Clone, Debug)]
pub(super) struct Http {
    client: Client,
    key: Secret,
}

impl Http {
    /// `answer_within` is how long may pass without a byte of an answer.
    pub(super) fn new(key: Secret, answer_within: Duration) -> Result<Self, DaytonaError> {
        let client = Client::builder()
            .connect_timeout(CONNECTING)
            .read_timeout(answer_within)
            // A stream of the toolbox begins as a request that is upgraded, which HTTP/2 does not know.
            .http1_only()
            .build()
            .map_err(|source| DaytonaError::Unreachable {
                call: "no client".to_owned(),
                source,
            })?;
        Ok(Self { client, key })
    }

    /// A request with all that every request has.
    pub(super) fn request(&self, method: &Method, url: &str) -> Call {
        let builder = self
            .client
            .request(method.clone(), url)
            .bearer_auth(self.key.expose())
            .header("X-Daytona-Source", "ralph")
            .header("X-Daytona-SDK-Version", SPEAKS);
        Call {
            builder,
            named: format!("{method} {}", path_of(url)),
        }
    }
}

/// One call, yet to be made.
#[derive(Debug)]
pub(super) struct Call {
    builder: RequestBuilder,
    named: String,
}

impl Call {
    /// Changes the request.
    pub(super) fn with(mut self, change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Self {
        self.builder = change(self.builder);
        self
    }

    /// Makes the call and reads its answer.
    pub(super) async fn json<T: DeserializeOwned>(self, repeat: Repeat) -> Result<T, DaytonaError> {
        let call = self.named.clone();
        let body = self.send(repeat).await?.bytes().await;
        let body = body.map_err(|source| unreachable(&call, source))?;
        serde_json::from_slice(&body).map_err(|error| DaytonaError::Answer {
            call,
            source: io::Error::new(io::ErrorKind::InvalidData, error),
        })
    }

    /// Makes the call and looks at nothing but whether it was refused.
    pub(super) async fn done(self, repeat: Repeat) -> Result<(), DaytonaError> {
        self.send(repeat).await.map(drop)
    }

    /// Makes the call, several times if need be. A body that is a stream goes out once.
    pub(super) async fn send(self, repeat: Repeat) -> Result<Response, DaytonaError> {
        let mut builder = self.builder;
        for failed in 1..=ATTEMPTS {
            let again = builder.try_clone();
            let (error, pause) = match attempt(builder, &self.named).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            match again.filter(|_| failed < ATTEMPTS && may_repeat(&error, repeat)) {
                Some(next) => builder = next,
                None => return Err(error),
            }
            sleep(pause.unwrap_or_else(|| backoff(failed)).min(LONGEST_PAUSE)).await;
        }
        Err(DaytonaError::Answer {
            call: self.named,
            source: io::ErrorKind::TimedOut.into(),
        })
    }
}

/// Tries once; a refusal may come with how long to wait.
async fn attempt(builder: RequestBuilder, call: &str) -> Result<Response, (DaytonaError, Option<Duration>)> {
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
        message: message_of(&text),
    };
    Err((refused, pause.map(Duration::from_secs)))
}

/// What was not heard may always be said again, and so may what was turned away at the door.
fn may_repeat(error: &DaytonaError, repeat: Repeat) -> bool {
    match error {
        DaytonaError::Unreachable { source, .. } => source.is_connect() || repeat == Repeat::Harmless,
        DaytonaError::Refused { status, .. } => {
            *status == 429 || (*status >= 500 && repeat == Repeat::Harmless)
        }
        DaytonaError::Answer { .. } | DaytonaError::State { .. } | DaytonaError::Stream { .. } => false,
    }
}

/// Doubles, up to a limit, and is never quite the same for two callers.
fn backoff(failed: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << failed.min(16)).min(LONGEST_PAUSE);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

fn unreachable(call: &str, source: reqwest::Error) -> DaytonaError {
    DaytonaError::Unreachable {
        call: call.to_owned(),
        source: source.without_url(),
    }
}

fn message_of(text: &str) -> String {
    let message = match serde_json::from_str::<Refusal>(text) {
        Ok(Refusal {
            message: Some(Message::One(message)),
            ..
        }) => message,
        Ok(Refusal {
            message: Some(Message::Several(messages)),
            ..
        }) => messages.join("; "),
        Ok(Refusal {
            error: Some(error), ..
        }) => error,
        Ok(_) | Err(_) => text.trim().to_owned(),
    };
    message.chars().take(LONGEST_MESSAGE).collect()
}

fn path_of(url: &str) -> &str {
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
    fn a_refusal_is_told_in_its_own_words(#[case] body: &str, #[case] told: &str) {
        assert_eq!(message_of(body), told);
    }

    #[test]
    fn waits_grow_and_have_an_end() {
        for failed in 1..100 {
            assert!((FIRST_PAUSE..=LONGEST_PAUSE).contains(&backoff(failed)));
        }
    }

    #[test]
    fn a_key_is_not_seen_in_what_is_printed() {
        let http = Http::new(Secret::new("dtn_0123456789"), Duration::from_secs(1)).unwrap();
        let call = http.request(&Method::GET, "http://127.0.0.1:1/api/sandbox");
        assert!(!format!("{http:?} {call:?}").contains("dtn_0123456789"));
    }
}
