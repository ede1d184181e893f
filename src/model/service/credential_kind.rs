//! The kinds of credentials.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MODEL_SERVICES;

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

/// A kind of credential. The kinds are the [`ModelService::credentials`](super::ModelService::credentials) of all
/// services.
pub type CredentialKind = &'static CredentialRecord;

/// What ralph knows about one kind of credential.
pub struct CredentialRecord {
    /// The name that it is stored under.
    pub name: &'static str,
    /// Its name in messages.
    pub title: &'static str,
    /// How it authenticates.
    pub auth: AuthMethod,
    /// The environment variable that holds it.
    pub variable: &'static str,
    /// The description of that variable in the reference.
    pub variable_doc: &'static str,
    /// The header that carries it; `None` for a bearer token in `Authorization`.
    pub header: Option<&'static str>,
    /// How its text starts; empty where that is not fixed.
    pub prefix: &'static str,
    /// The agent that `ralph token store` names for it.
    pub agent: Option<&'static str>,
}

impl CredentialRecord {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = CredentialKind> {
        MODEL_SERVICES
            .iter()
            .flat_map(|service| service.credentials.iter().copied())
    }

    /// How to store one, for hints.
    #[must_use]
    pub fn store_hint(&self) -> String {
        format!("store {self} with `ralph token store`")
    }
}

impl PartialEq for CredentialRecord {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CredentialRecord {}

impl fmt::Debug for CredentialRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for CredentialRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}
