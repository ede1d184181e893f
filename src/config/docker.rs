//! The settings of the `docker` provider.

use schemars::JsonSchema;
use serde::Deserialize;

use super::choice::{SealSetting, WorkspaceSetting};

/// `[sandbox.docker]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DockerSettings {
    /// How networks are sealed.
    pub seal: SealSetting,
    /// The OCI runtime of sandboxes, by the name that the engine knows it by.
    pub runtime: Option<String>,
    /// Where workspaces are.
    pub workspace: WorkspaceSetting,
}
