//! The responses of Daytona's API, as far as ralph uses them. Other fields are ignored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::secret::Secret;

/// A sandbox.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaSandboxInfo {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    /// The state, as Daytona names it. New versions add states.
    #[serde(default)]
    pub(super) state: String,
    pub(super) error_reason: Option<String>,
    pub(super) toolbox_proxy_url: String,
    pub(super) snapshot: Option<String>,
    pub(super) created_at: Option<Timestamp>,
}

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

impl DaytonaSandboxInfo {
    pub(super) fn phase(&self) -> DaytonaPhase {
        match self.state.as_str() {
            "started" => DaytonaPhase::Started,
            "stopped" | "paused" | "archived" => DaytonaPhase::Stopped,
            "destroyed" | "destroying" => DaytonaPhase::Removed,
            "error" | "build_failed" => DaytonaPhase::Failed,
            _ => DaytonaPhase::Changing,
        }
    }
}

/// One page of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaPage<T> {
    pub(super) items: Vec<T>,
    pub(super) next_cursor: Option<String>,
}

/// A registered snapshot.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaSnapshot {
    pub(super) id: String,
    #[serde(default)]
    pub(super) name: String,
    /// Whether Daytona offers it to everyone.
    #[serde(default)]
    pub(super) general: bool,
    #[serde(default)]
    pub(super) state: String,
    pub(super) error_reason: Option<String>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) last_used_at: Option<Timestamp>,
}

/// One page of the list of snapshots.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaSnapshotPage {
    pub(super) items: Vec<DaytonaSnapshot>,
    pub(super) total_pages: u64,
}

/// Temporary access to the object store of an organisation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DaytonaStorageAccess {
    pub(super) access_key: String,
    pub(super) secret: Secret,
    pub(super) session_token: Secret,
    pub(super) storage_url: String,
    pub(super) organization_id: String,
    pub(super) bucket: String,
    pub(super) region: String,
}

/// What a sandbox was created from.
#[derive(Deserialize)]
pub(super) struct DaytonaSandboxUse {
    pub(super) snapshot: Option<String>,
}

/// A credential in Daytona's vault, without its value.
#[derive(Deserialize)]
pub(super) struct DaytonaSecretInfo {
    pub(super) id: String,
    pub(super) name: String,
}

/// The URL of a port of a sandbox.
#[derive(Deserialize)]
pub(super) struct DaytonaPreview {
    pub(super) url: String,
    /// What Daytona asks programs for that use the URL.
    pub(super) token: Secret,
}

/// The result of a script. Output and errors are one text.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ToolboxScriptResult {
    pub(super) exit_code: i32,
    pub(super) result: String,
}

/// The response to starting a command in a session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolboxCommandStarted {
    pub(super) cmd_id: String,
}

/// A command of a session. It has no exit code while it runs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolboxCommandInfo {
    pub(super) exit_code: Option<i32>,
}

/// An entry of a directory.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolboxFileInfo {
    pub(super) name: String,
    pub(super) is_dir: bool,
    pub(super) size: u64,
    /// Permission bits, in octal.
    pub(super) permissions: String,
    pub(super) modified_at: Timestamp,
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
        assert_eq!(info.phase(), phase);
    }
}
