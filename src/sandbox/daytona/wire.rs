//! The types of Daytona's API, as far as ralph uses them. Other fields are ignored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The body of a request that creates a sandbox.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateDaytonaSandbox {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) source: DaytonaImageSource,
    pub(super) env: BTreeMap<String, String>,
    /// Variables, each with the name of its credential in Daytona's vault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) secrets: Vec<BTreeMap<String, String>>,
    pub(super) labels: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(super) network: DaytonaNetwork,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    /// In minutes.
    pub(super) auto_stop_interval: u32,
    /// In minutes.
    pub(super) auto_delete_interval: u32,
}

/// What a sandbox starts from.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum DaytonaImageSource {
    /// A snapshot, which defines the resources. Without a name it is Daytona's default.
    Snapshot {
        #[serde(skip_serializing_if = "Option::is_none")]
        snapshot: Option<String>,
    },
    /// An image that Daytona builds for the sandbox.
    #[serde(rename_all = "camelCase")]
    Build {
        build_info: DaytonaBuildInfo,
        #[serde(flatten)]
        size: DaytonaSize,
    },
}

/// What an image is built from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaBuildInfo {
    pub(super) dockerfile_content: String,
}

/// Resources, in whole processors and gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DaytonaSize {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk: Option<u64>,
}

/// What a sandbox may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaNetwork {
    #[serde(rename = "networkBlockAll", skip_serializing_if = "Option::is_none")]
    pub(super) block_all: Option<bool>,
    #[serde(rename = "domainAllowList", skip_serializing_if = "Option::is_none")]
    pub(super) domains: Option<String>,
}

/// A sandbox.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaSandboxInfo {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) state: DaytonaSandboxState,
    #[serde(default)]
    pub(super) error_reason: Option<String>,
    pub(super) toolbox_proxy_url: String,
    #[serde(default)]
    pub(super) snapshot: Option<String>,
    #[serde(default)]
    pub(super) created_at: Option<Timestamp>,
}

/// One page of a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaPage<T> {
    pub(super) items: Vec<T>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

/// The state of a sandbox, as Daytona names it. New versions add states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct DaytonaSandboxState(pub(super) String);

/// What a state means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DaytonaPhase {
    /// It runs commands.
    Started,
    /// It keeps its files, and can be started.
    Stopped,
    /// It is changing to another state. Unknown states count as this.
    Changing,
    /// It is being removed, or gone.
    Removed,
    Failed,
}

impl DaytonaSandboxState {
    pub(super) fn phase(&self) -> DaytonaPhase {
        match self.0.as_str() {
            "started" => DaytonaPhase::Started,
            "stopped" | "paused" | "archived" => DaytonaPhase::Stopped,
            "destroyed" | "destroying" => DaytonaPhase::Removed,
            "error" | "build_failed" => DaytonaPhase::Failed,
            _ => DaytonaPhase::Changing,
        }
    }
}

/// The body of a request that registers a snapshot: an image, with the resources of sandboxes that start from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreateDaytonaSnapshot {
    pub(super) name: String,
    pub(super) image_name: String,
    #[serde(flatten)]
    pub(super) size: DaytonaSize,
}

/// A registered snapshot.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaSnapshot {
    pub(super) id: String,
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    pub(super) error_reason: Option<String>,
}

/// The body of a request that stores a credential in Daytona's vault.
#[derive(Clone, Serialize)]
pub(super) struct DaytonaSecretBody<'a> {
    /// Absent when an existing credential is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    pub(super) value: &'a str,
    pub(super) hosts: Vec<&'a str>,
}

/// A credential in Daytona's vault, without its value.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct DaytonaSecretInfo {
    pub(super) id: String,
    pub(super) name: String,
}

/// The URL of a port of a sandbox.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct DaytonaPreview {
    pub(super) url: String,
}

/// The result of a script. Output and errors are one text.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolboxScriptResult {
    #[serde(default)]
    pub(super) exit_code: i32,
    #[serde(default)]
    pub(super) result: String,
}

/// The response to starting a command in a session.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolboxCommandStarted {
    pub(super) cmd_id: String,
}

/// A command of a session.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolboxCommandInfo {
    #[serde(default)]
    pub(super) exit_code: Option<i32>,
}

/// An entry of a directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolboxFileInfo {
    pub(super) name: String,
    pub(super) is_dir: bool,
    pub(super) size: u64,
    /// Permission bits, in octal.
    pub(super) permissions: String,
    pub(super) modified_at: Timestamp,
}

/// The body of an error response.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct DaytonaErrorBody {
    #[serde(default)]
    pub(super) message: Option<DaytonaErrorMessage>,
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// One message, or one for each invalid field.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum DaytonaErrorMessage {
    One(String),
    Several(Vec<String>),
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("started", DaytonaPhase::Started)]
    #[case("archived", DaytonaPhase::Stopped)]
    #[case("pulling_snapshot", DaytonaPhase::Changing)]
    #[case("a state of next year", DaytonaPhase::Changing)]
    #[case("build_failed", DaytonaPhase::Failed)]
    #[case("destroying", DaytonaPhase::Removed)]
    fn every_state_has_a_phase(#[case] state: &str, #[case] phase: DaytonaPhase) {
        let json = serde_json::json!({
            "id": "1", "name": "n", "state": state, "toolboxProxyUrl": "http://t", "aFieldOfNextYear": {},
        });
        let info: DaytonaSandboxInfo = serde_json::from_value(json).unwrap();
        assert_eq!(info.state.phase(), phase);
    }
}
