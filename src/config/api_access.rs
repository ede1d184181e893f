//! Who may use the API.

use schemars::JsonSchema;
use serde::Deserialize;

use super::key::KeyPath;
use super::notify::is_of_the_user;
use super::stack::LayerStack;

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

/// A project cannot open the API of the host to others, nor let them do more.
pub(super) fn check_api(stack: &mut LayerStack) {
    let access = stack
        .entries
        .iter()
        .filter(|(key, _)| key.to_string().starts_with("api.") || key.to_string() == "dashboard.mode");
    let foreign = access.filter(|(_, setting)| !is_of_the_user(&setting.origin));
    let foreign: Vec<KeyPath> = foreign.map(|(key, _)| key.clone()).collect();
    for key in foreign {
        let reason = "a project or a task cannot set who may use the API of this host, and for what; move it to your user file \
                      (`ralph config show` names it)";
        stack.contradiction(&key, reason);
    }
}
