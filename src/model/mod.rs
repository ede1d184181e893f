//! Models: what is asked, what comes back, and the errors the loop must tell apart.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::usage::{Price, Tokens, Usd};

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The rules of the conversation.
    System,
    /// ralph.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of ralph's.
    pub fn user(content: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            content: content.into(),
        }
    }

    /// A message of the model's.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self {
            role: Role::Assistant,
            content: content.into(),
        }
    }
}

/// A name for a model and its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The profile's own name, for example `default-cheap`.
    pub name: String,
    /// The model as LiteLLM or the endpoint knows it, for example `zai/glm-4.7`.
    pub litellm_model: String,
    /// The most tokens one answer may have.
    pub max_output_tokens: u32,
    /// How freely the model answers.
    pub temperature: Option<f64>,
    /// What it costs, where the endpoint does not say so itself.
    pub price: Option<Price>,
    /// Free words for choosing among profiles.
    pub tags: Vec<String>,
}

/// One call: a conversation, and which call of which iteration it is (a scripted model answers by that).
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The profile to call.
    pub profile: Profile,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The iteration this call belongs to, from 1.
    pub iteration: u32,
    /// Which call of the iteration it is, from 0.
    pub call: u32,
    /// What the call is for.
    pub purpose: Purpose,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The agent's own work.
    Agent,
    /// A diagnosis of a stuck run.
    Doctor,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The text.
    pub text: String,
    /// The model that answered, as the endpoint names it.
    pub model: String,
    /// Tokens used; `None` when the endpoint did not say.
    pub tokens: Option<Tokens>,
    /// What it cost; `None` when nobody knows. Unknown is never zero.
    pub cost: Option<Usd>,
    /// Whether the answer was cut off at `max_output_tokens`.
    pub cut_off: bool,
}

/// Why a model did not answer.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The endpoint asks to wait. The loop pauses; no iteration is spent.
    #[error("the model `{model}` is rate limited{}", retry_after.map_or(String::new(), |wait| format!(" for {} s", wait.as_secs())))]
    RateLimited {
        /// The profile's model.
        model: String,
        /// How long to wait, where the endpoint says so.
        retry_after: Option<Duration>,
    },
    /// The endpoint refuses the credential.
    #[error("{endpoint} refused the credential (HTTP {status})")]
    Unauthorized {
        /// Where the call went.
        endpoint: String,
        /// 401 or 403.
        status: u16,
    },
    /// The endpoint refuses the request itself; asking again would not help.
    #[error("{endpoint} refused the request (HTTP {status}): {message}")]
    Refused {
        /// Where the call went.
        endpoint: String,
        /// The status.
        status: u16,
        /// What it said, shortened.
        message: String,
    },
    /// Nothing usable came back after all retries.
    #[error("{endpoint} did not answer after {attempts} attempts: {reason}")]
    Unavailable {
        /// Where the call went.
        endpoint: String,
        /// How often it was tried.
        attempts: u32,
        /// What happened the last time.
        reason: String,
    },
    /// A scripted model has no answer for this call.
    #[error("the script has no answer for call {call} of iteration {iteration}")]
    ScriptExhausted {
        /// The iteration asked for.
        iteration: u32,
        /// The call asked for.
        call: u32,
    },
}

/// Something that answers. The real endpoint and the scripted model are two of these.
#[async_trait]
pub trait Model: Send + Sync {
    /// Answers one call. `on_text` sees the text as it arrives.
    async fn answer(
        &self,
        request: &Request,
        on_text: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Reply, ModelError>;
}
