//! One call, and what came of an attempt at it.

use std::collections::VecDeque;

use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Response, StatusCode};

use super::assembly::{Assembly, known_cost};
use super::sse::EventParser;
use super::verdict::{Verdict, verdict};
use super::wire::{ChatRequest, Chunk, ErrorBody};
use super::{OpenAiCompatible, wait};
use crate::model::{Breakdown, ModelError, OnText, Reply, Request};
use crate::usage::Usd;

/// One call of a client.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) client: &'a OpenAiCompatible,
    pub(super) request: &'a Request,
}

/// Why an attempt failed.
pub(super) enum Failure {
    /// For good.
    Final(ModelError),
    /// In a way that another attempt may mend.
    Passing(Breakdown),
}

/// The longest answer that is read.
const LONGEST_ANSWER: usize = 32 << 20;
/// The most of a refusal that is read.
const LONGEST_REFUSAL: usize = 64 << 10;
/// The most of an endpoint's own words that an error repeats, in characters.
const LONGEST_MESSAGE: usize = 300;

impl Call<'_> {
    /// Asks once.
    pub(super) async fn run(self, show: OnText<'_>) -> Result<Reply, Failure> {
        let response = self.send().await?;
        let mut assembly = Assembly::default();
        let quoted = match Form::of(&response) {
            Form::Events => {
                self.read_events(response, &mut assembly, show).await?;
                // LiteLLM sends the headers of a stream before it knows the cost.
                None
            }
            Form::Json => {
                let quoted = quoted_cost(response.headers());
                let body = self.read_body(response).await?;
                assembly.add(self.read_chunk(&body)?, show);
                quoted
            }
            Form::Other(form) => {
                return Err(self.refused(
                    StatusCode::OK,
                    &format!("it answered with {form}, not with a completion"),
                ));
            }
        };
        assembly
            .finish(&self.request.profile, quoted)
            .ok_or(Failure::Passing(Breakdown::Incomplete))
    }

    /// Sends the call and returns the answer, unless that is a refusal.
    async fn send(self) -> Result<Response, Failure> {
        let url = self.client.endpoint.completions();
        let post = self.client.http.post(url).json(&ChatRequest::from(self.request));
        let post = match &self.client.key {
            Some(key) => post.bearer_auth(key.expose()),
            None => post,
        };
        let response = post.send().await.map_err(|error| self.broken(error))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.read_refusal(response).await)
        }
    }

    /// Reads a stream up to its `[DONE]` or its end.
    async fn read_events(
        self,
        mut response: Response,
        assembly: &mut Assembly,
        show: OnText<'_>,
    ) -> Result<(), Failure> {
        let (mut parser, mut events, mut length) = (EventParser::default(), VecDeque::new(), 0);
        loop {
            let bytes = match response.chunk().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(()),
                // Only the usage is missing; asking again would cost more than not knowing it.
                Err(_) if assembly.is_finished() => return Ok(()),
                Err(error) => return Err(self.broken(error)),
            };
            length += bytes.len();
            self.check_length(length)?;
            parser.push(&bytes, &mut events);
            for event in events.drain(..) {
                if event == "[DONE]" {
                    return Ok(());
                }
                assembly.add(self.read_chunk(event.as_bytes())?, show);
            }
        }
    }

    async fn read_body(self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(|error| self.broken(error))? {
            body.extend_from_slice(&bytes);
            self.check_length(body.len())?;
        }
        Ok(body)
    }

    /// Reads a piece of an answer. An error in its place is a refusal that came late.
    fn read_chunk(self, json: &[u8]) -> Result<Chunk, Failure> {
        let chunk: Chunk = serde_json::from_slice(json)
            .map_err(|error| Failure::Passing(Breakdown::NotUnderstood(error)))?;
        let Some(error) = chunk.error else {
            return Ok(chunk);
        };
        let status = error.status().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Err(
            match self.judge(status, &HeaderMap::new(), &Words::Error(error)) {
                Failure::Passing(Breakdown::Failed { message, .. }) => {
                    Failure::Passing(Breakdown::FailedLate { message })
                }
                failure => failure,
            },
        )
    }

    async fn read_refusal(self, mut response: Response) -> Failure {
        let mut body = Vec::new();
        // The status counts, even where the rest of the refusal does not arrive.
        while let Ok(Some(bytes)) = response.chunk().await {
            body.extend_from_slice(&bytes);
            if body.len() > LONGEST_REFUSAL {
                break;
            }
        }
        let (status, headers) = (response.status(), response.headers());
        if status.is_redirection() {
            let to = headers
                .get(LOCATION)
                .and_then(|to| to.to_str().ok())
                .unwrap_or("another address");
            return self.refused(status, &format!("it points to {to}"));
        }
        self.judge(status, headers, &Words::of_refusal(&body))
    }

    fn judge(self, status: StatusCode, headers: &HeaderMap, words: &Words) -> Failure {
        match verdict(status, headers, words.error()) {
            Verdict::Wait => Failure::Final(ModelError::RateLimited {
                model: self.request.profile.litellm_model.clone(),
                retry_after: wait::asked_for(headers),
            }),
            Verdict::BadCredential => Failure::Final(ModelError::Unauthorized {
                endpoint: self.client.endpoint.to_string(),
                status: status.as_u16(),
            }),
            Verdict::Refused => self.refused(status, words.as_str()),
            Verdict::TryAgain => Failure::Passing(match words.error() {
                Some(_) => Breakdown::Failed {
                    status: status.as_u16(),
                    message: self.quote(words.as_str()),
                },
                None => Breakdown::Unexplained {
                    status: status.as_u16(),
                },
            }),
        }
    }

    fn refused(self, status: StatusCode, message: &str) -> Failure {
        Failure::Final(ModelError::Refused {
            endpoint: self.client.endpoint.to_string(),
            status: status.as_u16(),
            message: self.quote(message),
        })
    }

    fn check_length(self, length: usize) -> Result<(), Failure> {
        if length <= LONGEST_ANSWER {
            return Ok(());
        }
        let limit = LONGEST_ANSWER >> 20;
        Err(self.refused(StatusCode::OK, &format!("its answer is longer than {limit} MiB")))
    }

    fn broken(self, error: reqwest::Error) -> Failure {
        let error = error.without_url();
        Failure::Passing(if error.is_connect() {
            Breakdown::NoConnection(error)
        } else if error.is_timeout() {
            Breakdown::Silent {
                after: self.client.patience.idle,
            }
        } else {
            Breakdown::BrokenOff(error)
        })
    }

    /// An endpoint's own words: on one line, not too long, and without the key, which some endpoints repeat.
    fn quote(self, words: &str) -> String {
        let words = self.client.redactor.redact(words);
        let line: Vec<&str> = words.split_whitespace().collect();
        line.join(" ")
            .chars()
            .filter(|c| !c.is_control())
            .take(LONGEST_MESSAGE)
            .collect()
    }
}

/// What a refusal says.
enum Words {
    /// An error as the protocol has it.
    Error(ErrorBody),
    /// Something else.
    Text(String),
}

impl Words {
    fn of_refusal(body: &[u8]) -> Self {
        match ErrorBody::from_refusal(body) {
            Some(error) => Self::Error(error),
            None => Self::Text(String::from_utf8_lossy(body).into_owned()),
        }
    }

    fn error(&self) -> Option<&ErrorBody> {
        match self {
            Self::Error(error) => Some(error),
            Self::Text(_) => None,
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Error(error) => error.message().unwrap_or("no reason given"),
            Self::Text(text) => text,
        }
    }
}

/// How an answer is sent.
enum Form {
    /// As a stream of events.
    Events,
    /// In one body.
    Json,
    /// As something that is no answer.
    Other(String),
}

impl Form {
    fn of(response: &Response) -> Self {
        let header = response.headers().get(CONTENT_TYPE);
        let value = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = value
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => Self::Events,
            "application/json" => Self::Json,
            "" => Self::Other("no content type".to_owned()),
            _ => Self::Other(kind),
        }
    }
}

/// What LiteLLM says in a header that an answer cost.
pub(crate) fn quoted_cost(headers: &HeaderMap) -> Option<Usd> {
    let header = headers.get("x-litellm-response-cost")?;
    known_cost(header.to_str().ok()?.parse().ok()?)
}
