//! The kinds of credentials.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a credential authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMethod {
    /// The login of a subscription, which expires and can be renewed.
    #[serde(rename = "oauth")]
    OAuth,
    /// An API key of the service.
    ApiKey,
    /// A key of a model gateway such as LiteLLM, which has the keys of the services.
    Gateway,
}

impl AuthMethod {
    /// Its name in the configuration and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OAuth => "oauth",
            Self::ApiKey => "api-key",
            Self::Gateway => "gateway",
        }
    }
}

impl fmt::Display for AuthMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AuthMethod {
    type Err = UnknownAuthMethod;

    fn from_str(text: &str) -> Result<Self, UnknownAuthMethod> {
        [Self::OAuth, Self::ApiKey, Self::Gateway]
            .into_iter()
            .find(|auth| auth.name() == text)
            .ok_or_else(|| UnknownAuthMethod(text.to_owned()))
    }
}

/// The name of an authentication method that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("unknown authentication method `{0}`: expected `oauth`, `api-key` or `gateway`")]
pub struct UnknownAuthMethod(String);

/// The service of a credential and how it authenticates there: the pairs that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CredentialKind {
    /// The login of a Claude subscription.
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

impl CredentialKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::AnthropicOAuth,
        Self::AnthropicKey,
        Self::OpenAiKey,
        Self::CursorKey,
        Self::GatewayKey,
    ];

    /// The name that it is stored under.
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
    pub fn auth(self) -> AuthMethod {
        match self {
            Self::AnthropicOAuth => AuthMethod::OAuth,
            Self::AnthropicKey | Self::OpenAiKey | Self::CursorKey => AuthMethod::ApiKey,
            Self::GatewayKey => AuthMethod::Gateway,
        }
    }

    /// The command that stores one, for hints.
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

impl fmt::Display for CredentialKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnthropicOAuth => "the Claude login",
            Self::AnthropicKey => "the Anthropic API key",
            Self::OpenAiKey => "the OpenAI API key",
            Self::CursorKey => "the Cursor API key",
            Self::GatewayKey => "the model gateway key",
        })
    }
}
