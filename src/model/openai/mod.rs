//! The client for LiteLLM and other chat-completions endpoints.

mod chat_call;
mod endpoint;
mod partial_reply;
mod refusal;
mod retry_after;
mod sse;
mod wire;

use async_trait::async_trait;
use reqwest::header::HeaderValue;
use reqwest::redirect;

use self::chat_call::{AttemptFailure, ChatCall};
use super::{AttemptError, CallTimeouts, Model, ModelError, ModelReply, ModelRequest, OnText};
use crate::secret::{Redactor, Secret};

pub(crate) use self::chat_call::quoted_cost;
pub use self::endpoint::{EndpointError, ModelEndpoint};
pub(crate) use self::partial_reply::known_cost;
pub(crate) use self::retry_after::retry_after;
pub(crate) use self::sse::EventParser;

/// Calls an OpenAI-compatible endpoint.
///
/// The key goes only to this endpoint: the client follows no redirects and ignores proxy variables.
#[derive(Debug)]
pub struct OpenAiCompatible {
    http: reqwest::Client,
    endpoint: ModelEndpoint,
    key: Option<Secret>,
    redactor: Redactor,
    timeouts: CallTimeouts,
}

impl OpenAiCompatible {
    /// A client for this endpoint. Without a key it sends no `Authorization` header.
    pub fn new(
        endpoint: ModelEndpoint,
        key: Option<Secret>,
        timeouts: CallTimeouts,
    ) -> Result<Self, EndpointError> {
        if let Some(key) = &key {
            HeaderValue::from_str(key.expose()).map_err(EndpointError::Key)?;
        }
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(timeouts.connect)
            .read_timeout(timeouts.idle)
            .build()
            .map_err(EndpointError::Client)?;
        Ok(Self {
            http,
            endpoint,
            redactor: Redactor::new(key.clone()),
            key,
            timeouts,
        })
    }
}

#[async_trait]
impl Model for OpenAiCompatible {
    async fn answer(&self, request: &ModelRequest, on_text: OnText<'_>) -> Result<ModelReply, ModelError> {
        let call = ChatCall {
            client: self,
            request,
        };
        let retry = self.timeouts.retry;
        let mut shown_by = None;
        let mut unmetered_attempts = 0;
        let mut attempt = 1;
        loop {
            let mut show = |text: &str| {
                if *shown_by.get_or_insert(attempt) == attempt {
                    on_text(text);
                }
            };
            let error = match call.run(&mut show).await {
                Ok(mut reply) => {
                    reply.unmetered_attempts = unmetered_attempts;
                    return Ok(reply);
                }
                Err(AttemptFailure::Final(error)) => return Err(error),
                Err(AttemptFailure::Retryable(error)) => error,
            };
            unmetered_attempts += u32::from(error.may_have_cost());
            if attempt == retry.attempts.get() {
                return Err(self.give_up(attempt, unmetered_attempts, error));
            }
            tokio::time::sleep(retry.delay(attempt)).await;
            attempt += 1;
        }
    }
}

impl OpenAiCompatible {
    fn give_up(&self, attempts: u32, unmetered_attempts: u32, error: AttemptError) -> ModelError {
        let endpoint = self.endpoint.to_string();
        match error {
            // LiteLLM answers 500 without a message to a call without a key.
            AttemptError::Unexplained { status: 500 } if self.key.is_none() => ModelError::Unauthorized {
                endpoint,
                status: 500,
            },
            source => ModelError::Unavailable {
                endpoint,
                attempts,
                unmetered_attempts,
                source,
            },
        }
    }
}
