//! What goes over the wire: the part of the chat-completions language that ralph speaks.

use reqwest::StatusCode;
use serde::{Deserialize, Serialize};

use crate::model::{Message, Request, Role};

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

impl<'a> From<&'a Request> for ChatRequest<'a> {
    fn from(request: &'a Request) -> Self {
        let message = |message: &'a Message| ChatMessage {
            role: match message.role {
                Role::System => "system",
                Role::User => "user",
                Role::Assistant => "assistant",
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

/// A piece of a streamed answer. A whole answer in one body reads as a single piece.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk {
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) choices: Vec<Choice>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<ErrorBody>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    #[serde(alias = "message")]
    pub(super) delta: Option<Delta>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Delta {
    pub(super) content: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Usage {
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
    /// LiteLLM's reckoning, in dollars.
    pub(super) cost: Option<f64>,
}

/// The error in a refusal, or in place of a piece of the answer. Some servers send a mere text.
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

/// A status, or a word, as a number or as a text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ErrorCode {
    Number(i64),
    Text(String),
}

impl ErrorBody {
    /// The error of a refusal's body, if it has one that can be read.
    pub(super) fn from_refusal(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Refusal {
            error: ErrorBody,
        }
        serde_json::from_slice::<Refusal>(body)
            .ok()
            .map(|refusal| refusal.error)
    }

    /// What it says to people.
    pub(super) fn message(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Full { message, kind, .. } => message.as_deref().or(kind.as_deref()),
        }
    }

    /// Whether it is of this kind, by its type or by its code.
    pub(super) fn is(&self, word: &str) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Full { kind, code, .. } => {
                kind.as_deref() == Some(word) || matches!(code, Some(ErrorCode::Text(code)) if code == word)
            }
        }
    }

    /// The HTTP status that it stands for.
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
