//! The client for LiteLLM and other chat-completions endpoints, and for services that are called directly.

mod chat_call;
mod endpoint;
mod messages;
mod partial_reply;
mod refusal;
mod retry_after;
mod sse;
mod verify;
mod wire;

use async_trait::async_trait;
use reqwest::header::HeaderValue;
use reqwest::{RequestBuilder, redirect};
use serde_json::Value;

use self::chat_call::{AttemptFailure, ChatCall};
use super::direct::{ApiDialect, DirectService};
use super::{AttemptError, CallTimeouts, Model, ModelError, ModelReply, ModelRequest, OnText};
use crate::secret::{Redactor, Secret};
use crate::text::one_line;

pub(crate) use self::chat_call::quoted_cost;
pub use self::endpoint::{EndpointError, ModelEndpoint};
pub(crate) use self::partial_reply::known_cost;
pub(crate) use self::refusal::read_refusal;
pub(crate) use self::retry_after::retry_after;
pub(crate) use self::sse::EventParser;

/// How many characters of an endpoint's message an error quotes.
const MAX_MESSAGE: usize = 300;

/// Calls an OpenAI-compatible endpoint, or one of the [`DIRECT_SERVICES`](super::DIRECT_SERVICES) in its own protocol.
///
/// The key goes only to this endpoint: the client follows no redirects and ignores proxy variables.
#[derive(Debug)]
pub struct OpenAiCompatible {
    http: reqwest::Client,
    endpoint: ModelEndpoint,
    /// The service, if it is called directly.
    service: Option<&'static DirectService>,
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
        Self::create(endpoint, None, key, timeouts)
    }

    /// A client for a service at this address, which may be another than its own.
    pub fn direct(
        service: &'static DirectService,
        base_url: &str,
        key: Option<Secret>,
        timeouts: CallTimeouts,
    ) -> Result<Self, EndpointError> {
        let endpoint = match service.dialect {
            ApiDialect::Chat { .. } => ModelEndpoint::parse(base_url)?,
            ApiDialect::Messages => ModelEndpoint::parse_messages(base_url)?,
        };
        Self::create(endpoint, Some(service), key, timeouts)
    }

    fn create(
        endpoint: ModelEndpoint,
        service: Option<&'static DirectService>,
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
            service,
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
                Err(AttemptFailure::Limited {
                    retry_after,
                    may_have_cost,
                }) => {
                    return Err(ModelError::RateLimited {
                        model: request.profile.litellm_model.clone(),
                        retry_after,
                        unmetered_attempts: unmetered_attempts + u32::from(may_have_cost),
                    });
                }
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
    fn dialect(&self) -> ApiDialect {
        let gateway = ApiDialect::Chat {
            limit_field: "max_tokens",
        };
        self.service.map_or(gateway, |service| service.dialect)
    }

    /// The body of a call. A gateway knows models by their whole name, a service without its prefix.
    fn body(&self, request: &ModelRequest) -> Value {
        let name = request.profile.litellm_model.as_str();
        let own = self.service.and_then(|_| DirectService::for_model(name));
        let name = own.map_or(name, |(_, own)| own);
        let mut body = match self.dialect() {
            ApiDialect::Chat { limit_field } => wire::chat_request(request, name, limit_field),
            ApiDialect::Messages => messages::messages_request(request, name),
        };
        let takes_temperature = self.service.is_none_or(|service| service.takes_temperature);
        if let Some(temperature) = request.profile.temperature.filter(|_| takes_temperature) {
            body["temperature"] = temperature.into();
        }
        body
    }

    /// The same request with the key.
    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        let (request, header) = match self.dialect() {
            ApiDialect::Chat { .. } => (request, None),
            ApiDialect::Messages => (
                request.header("anthropic-version", messages::VERSION),
                Some("x-api-key"),
            ),
        };
        match (&self.key, header) {
            (None, _) => request,
            (Some(key), None) => request.bearer_auth(key.expose()),
            (Some(key), Some(name)) => request.header(name, key.expose()),
        }
    }

    /// An endpoint's message on one line, shortened, without the key, which some endpoints repeat.
    fn quote(&self, words: &str) -> String {
        one_line(&self.redactor.redact(words))
            .chars()
            .filter(|c| !c.is_control())
            .take(MAX_MESSAGE)
            .collect()
    }

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
