//! The part of the chat-completions API that ralph uses.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::ModelRequest;

/// The body of a call.
pub(super) fn chat_request(request: &ModelRequest) -> Value {
    let profile = &request.profile;
    let mut body = json!({
        "model": profile.litellm_model,
        "messages": request.messages,
        "max_tokens": profile.max_output_tokens,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if let Some(temperature) = profile.temperature {
        body["temperature"] = temperature.into();
    }
    body
}

/// A chunk of a streamed answer. An answer in one body parses as a single chunk.
#[derive(Debug, Deserialize)]
pub(super) struct ChatChunk {
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) choices: Vec<ChatChoice>,
    pub(super) usage: Option<ChatUsage>,
    pub(super) error: Option<ErrorBody>,
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

#[derive(Debug, Deserialize)]
pub(super) struct ChatUsage {
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
    /// In dollars, from LiteLLM.
    pub(super) cost: Option<f64>,
}

/// The error in a refusal, or in place of a chunk: an object with `message`, `type` and `code`. Some servers send only a
/// text.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct ErrorBody(Value);

impl ErrorBody {
    /// Parses the body of a refusal; `None` if it has no error in a known format.
    pub(super) fn from_refusal(body: &[u8]) -> Option<Self> {
        let mut body: Value = serde_json::from_slice(body).ok()?;
        let error = body.get_mut("error")?.take();
        (error.is_string() || error.is_object()).then_some(Self(error))
    }

    /// The error message.
    pub(super) fn message(&self) -> &str {
        let texts = [&self.0, &self.0["message"], &self.0["type"]];
        let text = texts.into_iter().find_map(Value::as_str);
        text.unwrap_or("no reason given")
    }

    /// Whether its type or code is this name.
    pub(super) fn is(&self, word: &str) -> bool {
        self.0["type"] == word || self.0["code"] == word
    }

    /// The HTTP status in its code, a number or a text.
    pub(super) fn status(&self) -> Option<StatusCode> {
        let code = &self.0["code"];
        let status = match code.as_str() {
            Some(text) => text.parse().ok()?,
            None => u16::try_from(code.as_u64()?).ok()?,
        };
        let status = StatusCode::from_u16(status).ok()?;
        (status.is_client_error() || status.is_server_error()).then_some(status)
    }
}
