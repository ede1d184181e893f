//! Who may use the API.

use schemars::JsonSchema;
use serde::Deserialize;

/// `[api]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiAccessSettings {
    /// Further names of the service.
    pub allowed_hosts: Vec<String>,
    /// Further origins of pages that may use it.
    pub allowed_origins: Vec<String>,
    /// Whether other hosts may change runs without isolation.
    pub dangerously_allow_local: bool,
}
