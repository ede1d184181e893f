//! The client for LiteLLM and every other endpoint that speaks chat completions.

mod assembly;
mod call;
mod endpoint;
mod sse;
mod verdict;
mod wait;
mod wire;

use async_trait::async_trait;
use reqwest::header::HeaderValue;
use reqwest::redirect;

use self::call::{Call, Failure};
use super::{Breakdown, Model, ModelError, OnText, Patience, Reply, Request};
use crate::secret::{Redactor, Secret};

pub(crate) use self::assembly::known_cost;
pub(crate) use self::call::quoted_cost;
pub use self::endpoint::{Endpoint, EndpointError};
pub(crate) use self::sse::EventParser;
pub(crate) use self::wait::asked_for;

/// Calls an OpenAI-compatible endpoint.
///
/// The key goes to that endpoint alone: redirects are not followed and proxy variables are not read.
#[derive(Debug)]
pub struct OpenAiCompatible {
    http: reqwest::Client,
    endpoint: Endpoint,
    key: Option<Secret>,
    redactor: Redactor,
    patience: Patience,
}

impl OpenAiCompatible {
    /// A client for this endpoint. No key, no `Authorization` header.
    pub fn new(endpoint: Endpoint, key: Option<Secret>, patience: Patience) -> Result<Self, EndpointError> {
        if let Some(key) = &key {
            HeaderValue::from_str(key.expose()).map_err(EndpointError::Key)?;
        }
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(patience.connect)
            .read_timeout(patience.idle)
            .build()
            .map_err(EndpointError::Client)?;
        Ok(Self {
            http,
            endpoint,
            redactor: Redactor::new(key.clone()),
            key,
            patience,
        })
    }
}

#[async_trait]
impl Model for OpenAiCompatible {
    async fn answer(&self, request: &Request, on_text: OnText<'_>) -> Result<Reply, ModelError> {
        let call = Call {
            client: self,
            request,
        };
        let retry = self.patience.retry;
        let mut shown_by = None;
        let mut unmetered_attempts = 0;
        let mut attempt = 1;
        loop {
            let mut show = |text: &str| {
                if *shown_by.get_or_insert(attempt) == attempt {
                    on_text(text);
                }
            };
            let breakdown = match call.run(&mut show).await {
                Ok(mut reply) => {
                    reply.unmetered_attempts = unmetered_attempts;
                    return Ok(reply);
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(breakdown)) => breakdown,
            };
            unmetered_attempts += u32::from(breakdown.may_have_cost());
            if attempt == retry.attempts.get() {
                return Err(self.give_up(attempt, unmetered_attempts, breakdown));
            }
            tokio::time::sleep(retry.delay(attempt)).await;
            attempt += 1;
        }
    }
}

impl OpenAiCompatible {
    fn give_up(&self, attempts: u32, unmetered_attempts: u32, breakdown: Breakdown) -> ModelError {
        let endpoint = self.endpoint.to_string();
        match breakdown {
            // LiteLLM's answer to a call without a key.
            Breakdown::Unexplained { status: 500 } if self.key.is_none() => ModelError::Unauthorized {
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
