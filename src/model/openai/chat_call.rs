//! One attempt at a call.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Response, StatusCode};

use super::partial_reply::{PartialReply, known_cost};
use super::refusal::{RefusalKind, classify, read_refusal};
use super::sse::EventParser;
use super::wire::{ChatChunk, ErrorBody};
use super::{OpenAiCompatible, messages, retry_after};
use crate::model::direct::ApiDialect;
use crate::model::{AttemptError, ModelError, ModelReply, ModelRequest, OnText};
use crate::usage::Usd;

/// A request with its client.
#[derive(Clone, Copy)]
pub(super) struct ChatCall<'a> {
    pub(super) client: &'a OpenAiCompatible,
    pub(super) request: &'a ModelRequest,
}

/// Why an attempt failed.
pub(super) enum AttemptFailure {
    /// The call failed.
    Final(ModelError),
    /// The endpoint asks to wait.
    Limited {
        retry_after: Option<Duration>,
        /// Whether the answer had begun.
        may_have_cost: bool,
    },
    /// Another attempt may succeed.
    Retryable(AttemptError),
}

impl AttemptFailure {
    /// The same failure after a part of the answer.
    fn after(self, part: &PartialReply) -> Self {
        match self {
            Self::Limited { retry_after, .. } => Self::Limited {
                retry_after,
                may_have_cost: part.has_begun(),
            },
            failure => failure,
        }
    }
}

/// The limit of an answer, in bytes.
const MAX_ANSWER: usize = 32 << 20;

impl ChatCall<'_> {
    /// Makes one attempt.
    pub(super) async fn run(self, show: OnText<'_>) -> Result<ModelReply, AttemptFailure> {
        let response = self.send().await?;
        let mut partial_reply = PartialReply::default();
        let mut quoted = None;
        match media_type(&response).as_str() {
            // LiteLLM sends the headers of a stream before it knows the cost.
            "text/event-stream" => self.read_events(response, &mut partial_reply, show).await?,
            "application/json" => {
                quoted = quoted_cost(response.headers());
                let body = self.read_body(response).await?;
                partial_reply.add(self.parse_chunk(&body)?, show);
            }
            other => {
                let form = if other.is_empty() { "(none)" } else { other };
                return Err(self.refused(StatusCode::OK, &format!("the answer has the content type {form}")));
            }
        }
        let reports_cost = self.client.service.is_some_and(|service| service.reports_cost);
        partial_reply
            .finish(&self.request.profile, quoted, reports_cost)
            .ok_or(AttemptFailure::Retryable(AttemptError::Incomplete))
    }

    /// Sends the call. A refusal is an error.
    async fn send(self) -> Result<Response, AttemptFailure> {
        let url = self.client.endpoint.calls.clone();
        let post = self.client.http.post(url).json(&self.client.body(self.request));
        let post = self.client.authorized(post);
        let response = post.send().await.map_err(|error| self.broken(error))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.refusal(response).await)
        }
    }

    /// Reads a stream up to its `[DONE]` or its end.
    async fn read_events(
        self,
        mut response: Response,
        partial_reply: &mut PartialReply,
        show: OnText<'_>,
    ) -> Result<(), AttemptFailure> {
        let (mut parser, mut length) = (EventParser::default(), 0);
        loop {
            let bytes = match response.chunk().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(()),
                // Only the usage is missing; a retry would cost more than not knowing it.
                Err(_) if partial_reply.is_finished() => return Ok(()),
                Err(error) => return Err(self.broken(error)),
            };
            length += bytes.len();
            self.check_length(length)?;
            for event in parser.push(&bytes) {
                if event == "[DONE]" {
                    return Ok(());
                }
                let chunk = self
                    .parse_chunk(event.as_bytes())
                    .map_err(|failure| failure.after(partial_reply))?;
                let is_last = chunk.is_last;
                partial_reply.add(chunk, show);
                if is_last {
                    return Ok(());
                }
            }
        }
    }

    async fn read_body(self, mut response: Response) -> Result<Vec<u8>, AttemptFailure> {
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(|error| self.broken(error))? {
            body.extend_from_slice(&bytes);
            self.check_length(body.len())?;
        }
        Ok(body)
    }

    /// Parses a chunk. An error in its place is a late refusal.
    fn parse_chunk(self, json: &[u8]) -> Result<ChatChunk, AttemptFailure> {
        let parsed = match self.client.dialect() {
            ApiDialect::Chat { .. } => serde_json::from_slice(json),
            ApiDialect::Messages => messages::parse_event(json),
        };
        let chunk: ChatChunk =
            parsed.map_err(|error| AttemptFailure::Retryable(AttemptError::Malformed(error)))?;
        let Some(error) = chunk.error else {
            return Ok(chunk);
        };
        let status = error.status().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Err(match self.classify(status, &HeaderMap::new(), Some(&error), "") {
            AttemptFailure::Retryable(AttemptError::Failed { message, .. }) => {
                AttemptFailure::Retryable(AttemptError::FailedMidway { message })
            }
            failure => failure,
        })
    }

    /// Reads the response of an endpoint that refused the call.
    async fn refusal(self, mut response: Response) -> AttemptFailure {
        let body = read_refusal(&mut response).await;
        let (status, headers) = (response.status(), response.headers());
        if status.is_redirection() {
            let to = headers
                .get(LOCATION)
                .and_then(|to| to.to_str().ok())
                .unwrap_or("an unknown address");
            return self.refused(status, &format!("it redirects to {to}"));
        }
        let error = ErrorBody::from_refusal(&body);
        self.classify(status, headers, error.as_ref(), &String::from_utf8_lossy(&body))
    }

    /// Classifies a refusal. `body` is its message if it has no error in a known format.
    fn classify(
        self,
        status: StatusCode,
        headers: &HeaderMap,
        error: Option<&ErrorBody>,
        body: &str,
    ) -> AttemptFailure {
        match classify(status, headers, error) {
            RefusalKind::Wait => AttemptFailure::Limited {
                retry_after: retry_after::retry_after(headers),
                may_have_cost: false,
            },
            RefusalKind::BadCredential => AttemptFailure::Final(ModelError::Unauthorized {
                endpoint: self.client.endpoint.to_string(),
                status: status.as_u16(),
            }),
            RefusalKind::Refused => self.refused(status, error.map_or(body, ErrorBody::message)),
            RefusalKind::Retry => AttemptFailure::Retryable(match error {
                Some(error) => AttemptError::Failed {
                    status: status.as_u16(),
                    message: self.client.quote(error.message()),
                },
                None => AttemptError::Unexplained {
                    status: status.as_u16(),
                },
            }),
        }
    }

    fn refused(self, status: StatusCode, message: &str) -> AttemptFailure {
        AttemptFailure::Final(ModelError::Refused {
            endpoint: self.client.endpoint.to_string(),
            status: status.as_u16(),
            message: self.client.quote(message),
        })
    }

    fn check_length(self, length: usize) -> Result<(), AttemptFailure> {
        if length <= MAX_ANSWER {
            return Ok(());
        }
        let limit = MAX_ANSWER >> 20;
        Err(self.refused(StatusCode::OK, &format!("the answer is longer than {limit} MiB")))
    }

    fn broken(self, error: reqwest::Error) -> AttemptFailure {
        let error = error.without_url();
        AttemptFailure::Retryable(if error.is_connect() {
            AttemptError::NoConnection(error)
        } else if error.is_timeout() {
            AttemptError::Silent {
                after: self.client.timeouts.idle,
            }
        } else {
            AttemptError::Interrupted(error)
        })
    }
}

/// The media type of a response in lower case, without parameters; empty if it has none.
fn media_type(response: &Response) -> String {
    let header = response.headers().get(CONTENT_TYPE);
    let value = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}

/// The cost that LiteLLM reports in a response header.
pub(crate) fn quoted_cost(headers: &HeaderMap) -> Option<Usd> {
    let header = headers.get("x-litellm-response-cost")?;
    known_cost(header.to_str().ok()?.parse().ok()?)
}
