//! What people may do on the dashboard.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::choice::DashboardMode;
use super::key::KeyPath;
use super::settings::ConfigSettings;
use super::stack::LayerStack;

/// `[dashboard]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DashboardSettings {
    /// How much people may ask of runs.
    pub mode: DashboardMode,
    /// Commands that people may run in the sandbox of a run, by name.
    #[serde(default)]
    pub commands: BTreeMap<String, String>,
}

/// Names of commands are parts of file names.
pub(super) fn check_dashboard(stack: &mut LayerStack, settings: &ConfigSettings) {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_name = |name: &str| (1..=40).contains(&name.len()) && name.bytes().all(is_letter);
    for (name, line) in &settings.dashboard.commands {
        let reason = if !is_name(name) {
            "the name of a command has 1 to 40 letters, digits, `-` or `_`"
        } else if line.trim().is_empty() {
            "the command is empty"
        } else {
            continue;
        };
        stack.contradiction(&KeyPath::parse("dashboard.commands").child(name), reason);
    }
}
