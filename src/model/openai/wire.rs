//! The part of the chat-completions API that ralph uses.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::{BilledTokens, ModelRequest};
use crate::usage::Tokens;

/// The body of a call to a model of this name. `limit_field` limits the tokens of the answer.
pub(super) fn chat_request(request: &ModelRequest, model: &str, limit_field: &str) -> Value {
    json!({
        "model": model,
        "messages": request.messages,
        limit_field: request.profile.max_output_tokens,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// A chunk of a streamed answer. An answer in one body parses as a single chunk.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ChatChunk {
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) choices: Vec<ChatChoice>,
    pub(super) usage: Option<ChatUsage>,
    pub(super) error: Option<ErrorBody>,
    /// Whether nothing follows.
    #[serde(skip)]
    pub(super) is_last: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatChoice {
    #[serde(alias = "message")]
    pub(super) delta: Option<ChatDelta>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatDelta {
    pub(super) content: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct ChatUsage {
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
    pub(super) total_tokens: Option<u64>,
    pub(super) prompt_tokens_details: Option<PromptDetails>,
    /// In dollars, from LiteLLM and `OpenRouter`.
    pub(super) cost: Option<f64>,
    /// At `OpenRouter`: whether the call was made with the user's key of another provider. `cost` is only the fee then.
    pub(super) is_byok: Option<bool>,
    pub(super) cost_details: Option<CostDetails>,
}

/// Parts of the cost, from `OpenRouter`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct CostDetails {
    /// What the provider charges, in dollars.
    pub(super) upstream_inference_cost: Option<f64>,
}

/// Parts of the input.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct PromptDetails {
    pub(super) cached_tokens: Option<u64>,
    pub(super) cache_write_tokens: Option<u64>,
}

impl ChatUsage {
    /// The same with what a later report adds or replaces.
    pub(super) fn updated(self, later: Self) -> Self {
        Self {
            prompt_tokens: later.prompt_tokens.or(self.prompt_tokens),
            completion_tokens: later.completion_tokens.or(self.completion_tokens),
            total_tokens: later.total_tokens.or(self.total_tokens),
            prompt_tokens_details: later.prompt_tokens_details.or(self.prompt_tokens_details),
            cost: later.cost.or(self.cost),
            is_byok: later.is_byok.or(self.is_byok),
            cost_details: later.cost_details.or(self.cost_details),
        }
    }

    /// The reported cost in dollars, with that of the provider if the user pays it; `None` if a part is not reported.
    pub(super) fn dollars(self) -> Option<f64> {
        let of_provider = if self.is_byok.unwrap_or_default() {
            self.cost_details?.upstream_inference_cost?
        } else {
            0.0
        };
        Some(self.cost? + of_provider)
    }

    /// The tokens of the call; `None` if the report is incomplete.
    pub(super) fn tokens(self) -> Option<BilledTokens> {
        let (input, output) = (self.prompt_tokens?, self.completion_tokens?);
        // Google counts the tokens of thoughts in the total only.
        let besides_input = self.total_tokens.unwrap_or_default().saturating_sub(input);
        let details = self.prompt_tokens_details.unwrap_or_default();
        Some(BilledTokens {
            all: Tokens {
                input,
                output: output.max(besides_input),
            },
            cached: details.cached_tokens.unwrap_or_default(),
            written: details.cache_write_tokens.unwrap_or_default(),
        })
    }
}

/// The error in a refusal, or in place of a chunk: an object with `message`, `type` and `code`. Some servers send only a
/// text.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct ErrorBody(Value);

impl ErrorBody {
    /// Parses the body of a refusal; `None` if it has no error in a known format. Google puts it into a list.
    pub(super) fn from_refusal(body: &[u8]) -> Option<Self> {
        let mut body: Value = serde_json::from_slice(body).ok()?;
        if let Some(first) = body.get_mut(0) {
            body = first.take();
        }
        let error = body.get_mut("error")?.take();
        (error.is_string() || error.is_object()).then_some(Self(error))
    }

    /// The error message.
    pub(super) fn message(&self) -> &str {
        let texts = [&self.0, &self.0["message"], &self.0["type"]];
        let text = texts.into_iter().find_map(Value::as_str);
        text.unwrap_or("no reason given")
    }

    /// Whether its type, its code or one of Google's reasons is this name.
    pub(super) fn is(&self, word: &str) -> bool {
        let mut details = self.0["details"].as_array().into_iter().flatten();
        self.0["type"] == word || self.0["code"] == word || details.any(|detail| detail["reason"] == word)
    }

    /// The HTTP status in its code, a number or a text, or the one that Anthropic has for its type.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self.0["type"].as_str() {
            Some("overloaded_error") => return StatusCode::from_u16(529).ok(),
            Some("rate_limit_error") => return Some(StatusCode::TOO_MANY_REQUESTS),
            _ => {}
        }
        let code = &self.0["code"];
        let status = match code.as_str() {
            Some(text) => text.parse().ok()?,
            None => u16::try_from(code.as_u64()?).ok()?,
        };
        let status = StatusCode::from_u16(status).ok()?;
        (status.is_client_error() || status.is_server_error()).then_some(status)
    }
}
