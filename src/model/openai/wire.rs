//! The part of the chat-completions API that ralph uses.

use reqwest::StatusCode;
use serde::{Deserialize, Serialize};

use crate::model::{MessageRole, ModelMessage, ModelRequest};

/// The body of a call.
#[derive(Debug, Serialize)]
pub(super) struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<ChatMessage<'a>>,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Debug, Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Debug, Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl<'a> From<&'a ModelRequest> for ChatRequest<'a> {
    fn from(request: &'a ModelRequest) -> Self {
        let message = |message: &'a ModelMessage| ChatMessage {
            role: match message.role {
                MessageRole::System => "system",
                MessageRole::User => "user",
                MessageRole::Assistant => "assistant",
            },
            content: &message.content,
        };
        Self {
            model: &request.profile.litellm_model,
            messages: request.messages.iter().map(message).collect(),
            max_tokens: request.profile.max_output_tokens,
            temperature: request.profile.temperature,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
        }
    }
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

/// The error in a refusal, or in place of a chunk. Some servers send only a text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ErrorBody {
    Text(String),
    Full {
        message: Option<String>,
        #[serde(rename = "type")]
        kind: Option<String>,
        code: Option<ErrorCode>,
    },
}

/// An HTTP status or a name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ErrorCode {
    Number(i64),
    Text(String),
}

impl ErrorBody {
    /// Parses the body of a refusal; `None` if it has no error in a known format.
    pub(super) fn from_refusal(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Refusal {
            error: ErrorBody,
        }
        serde_json::from_slice::<Refusal>(body)
            .ok()
            .map(|refusal| refusal.error)
    }

    /// The error message.
    pub(super) fn message(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Full { message, kind, .. } => message.as_deref().or(kind.as_deref()),
        }
    }

    /// Whether its type or code is this name.
    pub(super) fn is(&self, word: &str) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Full { kind, code, .. } => {
                kind.as_deref() == Some(word) || matches!(code, Some(ErrorCode::Text(code)) if code == word)
            }
        }
    }

    /// The HTTP status in its code.
    pub(super) fn status(&self) -> Option<StatusCode> {
        let Self::Full { code: Some(code), .. } = self else {
            return None;
        };
        let status = match code {
            ErrorCode::Number(number) => u16::try_from(*number).ok()?,
            ErrorCode::Text(text) => text.parse().ok()?,
        };
        StatusCode::from_u16(status)
            .ok()
            .filter(|status| status.is_client_error() || status.is_server_error())
    }
}
