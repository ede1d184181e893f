//! Which credentials there are.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a credential authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// A login of a subscription, which ends and can be renewed.
    #[serde(rename = "oauth")]
    OAuth,
    /// A key of the service itself.
    ApiKey,
    /// A key of a model gateway such as LiteLLM, which has the keys of the services.
    Gateway,
}

impl Auth {
    /// The word for it, as in `--auth`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OAuth => "oauth",
            Self::ApiKey => "api-key",
            Self::Gateway => "gateway",
        }
    }
}

impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Auth {
    type Err = UnknownAuth;

    fn from_str(text: &str) -> Result<Self, UnknownAuth> {
        [Self::OAuth, Self::ApiKey, Self::Gateway]
            .into_iter()
            .find(|auth| auth.name() == text)
            .ok_or_else(|| UnknownAuth(text.to_owned()))
    }
}

/// A word that names no way of authenticating.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is none of `oauth`, `api-key` and `gateway`")]
pub struct UnknownAuth(String);

/// Whose credential it is, and how it authenticates: the pairs that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Claude subscription.
    AnthropicOAuth,
    /// A key of the Anthropic API.
    AnthropicKey,
    /// A key of the OpenAI API.
    OpenAiKey,
    /// A key of Cursor.
    CursorKey,
    /// A key of the model gateway that `model_endpoint` names.
    GatewayKey,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::AnthropicOAuth,
        Self::AnthropicKey,
        Self::OpenAiKey,
        Self::CursorKey,
        Self::GatewayKey,
    ];

    /// The name it is kept under.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AnthropicOAuth => "anthropic-oauth",
            Self::AnthropicKey => "anthropic-api-key",
            Self::OpenAiKey => "openai-api-key",
            Self::CursorKey => "cursor-api-key",
            Self::GatewayKey => "gateway-key",
        }
    }

    /// How it authenticates.
    #[must_use]
    pub fn auth(self) -> Auth {
        match self {
            Self::AnthropicOAuth => Auth::OAuth,
            Self::AnthropicKey | Self::OpenAiKey | Self::CursorKey => Auth::ApiKey,
            Self::GatewayKey => Auth::Gateway,
        }
    }

    /// The command that stores one.
    #[must_use]
    pub fn store_command(self) -> &'static str {
        match self {
            Self::AnthropicOAuth => "ralph token store --agent claude --auth oauth",
            Self::AnthropicKey => "ralph token store --agent claude --auth api-key",
            Self::OpenAiKey => "ralph token store --agent codex --auth api-key",
            Self::CursorKey => "ralph token store --agent cursor --auth api-key",
            Self::GatewayKey => "ralph token store --auth gateway",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnthropicOAuth => "the login of Claude",
            Self::AnthropicKey => "the key of Anthropic",
            Self::OpenAiKey => "the key of OpenAI",
            Self::CursorKey => "the key of Cursor",
            Self::GatewayKey => "the key of the model gateway",
        })
    }
}
