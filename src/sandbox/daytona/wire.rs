//! The shapes of Daytona's API, as far as they are used. Fields that are not named here are passed over.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A sandbox to be made.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewSandbox {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) ground: Ground,
    pub(super) env: BTreeMap<String, String>,
    /// Variables, and what Daytona's vault calls that which they stand for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) secrets: Vec<BTreeMap<String, String>>,
    pub(super) labels: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(super) network: Network,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    pub(super) auto_stop_interval: u32,
    pub(super) auto_delete_interval: u32,
}

/// What a sandbox starts from.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Ground {
    /// A snapshot, which has its resources; Daytona's own when it has no name.
    Snapshot {
        #[serde(skip_serializing_if = "Option::is_none")]
        snapshot: Option<String>,
    },
    /// An image that Daytona builds for it.
    #[serde(rename_all = "camelCase")]
    Build {
        build_info: BuildInfo,
        #[serde(flatten)]
        size: Size,
    },
}

/// What an image is built from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BuildInfo {
    pub(super) dockerfile_content: String,
}

/// Resources, in whole processors and gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Size {
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
pub(super) struct Network {
    #[serde(rename = "networkBlockAll", skip_serializing_if = "Option::is_none")]
    pub(super) block_all: Option<bool>,
    #[serde(rename = "domainAllowList", skip_serializing_if = "Option::is_none")]
    pub(super) domains: Option<String>,
}

/// A sandbox that is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remote {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) state: State,
    #[serde(default)]
    pub(super) error_reason: Option<String>,
    pub(super) toolbox_proxy_url: String,
    #[serde(default)]
    pub(super) snapshot: Option<String>,
    #[serde(default)]
    pub(super) created_at: Option<Timestamp>,
}

/// One page of a listing.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    pub(super) items: Vec<Remote>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

/// How far a sandbox is, in Daytona's own word: there are more of them with every version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct State(pub(super) String);

/// What a state means for a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It takes commands.
    Started,
    /// It keeps its files, and can be started.
    Resting,
    /// It is on its way to another state. States that are not known are taken for this.
    Moving,
    /// It is being removed, or gone.
    Ending,
    /// It came to nothing.
    Failed,
}

impl State {
    pub(super) fn phase(&self) -> Phase {
        match self.0.as_str() {
            "started" => Phase::Started,
            "stopped" | "paused" | "archived" => Phase::Resting,
            "destroyed" | "destroying" => Phase::Ending,
            "error" | "build_failed" => Phase::Failed,
            _ => Phase::Moving,
        }
    }
}

/// A snapshot to be registered: an image, with the resources of the sandboxes that start from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewSnapshot {
    pub(super) name: String,
    pub(super) image_name: String,
    #[serde(flatten)]
    pub(super) size: Size,
}

/// A snapshot that is registered.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot {
    pub(super) id: String,
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    pub(super) error_reason: Option<String>,
}

/// A credential for Daytona's vault.
#[derive(Clone, Serialize)]
pub(super) struct NewSecret<'a> {
    /// Absent where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    pub(super) value: &'a str,
    pub(super) hosts: Vec<&'a str>,
}

/// One page of the vault.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretPage {
    pub(super) items: Vec<KeptSecret>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

/// What the vault tells of a credential.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct KeptSecret {
    pub(super) id: String,
    pub(super) name: String,
}

/// A link to a port of a sandbox.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Preview {
    pub(super) url: String,
}

/// A script to be run to its end.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Execute {
    pub(super) command: String,
    pub(super) cwd: String,
    /// In seconds.
    pub(super) timeout: u64,
}

/// What came of it; output and errors are one text.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Executed {
    #[serde(default)]
    pub(super) exit_code: i32,
    #[serde(default)]
    pub(super) result: String,
}

/// A command in a session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionExecute {
    pub(super) command: String,
    pub(super) run_async: bool,
}

/// A command that was started in a session.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionStarted {
    pub(super) cmd_id: String,
}

/// A command of a session.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionCommand {
    #[serde(default)]
    pub(super) exit_code: Option<i32>,
}

/// A terminal to be opened.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NewTerminal {
    pub(super) id: String,
    pub(super) cwd: String,
    pub(super) cols: u16,
    pub(super) rows: u16,
}

/// An entry of a directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileInfo {
    pub(super) name: String,
    pub(super) is_dir: bool,
    pub(super) size: u64,
    /// Permission bits, in octal.
    pub(super) permissions: String,
    pub(super) modified_at: Timestamp,
}

/// What a refusal says.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    pub(super) message: Option<Message>,
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// One message, or one for each field that does not fit.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Message {
    One(String),
    Several(Vec<String>),
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("started", Phase::Started)]
    #[case("archived", Phase::Resting)]
    #[case("pulling_snapshot", Phase::Moving)]
    #[case("a state of next year", Phase::Moving)]
    #[case("build_failed", Phase::Failed)]
    #[case("destroying", Phase::Ending)]
    fn every_state_means_something(#[case] state: &str, #[case] phase: Phase) {
        let json = serde_json::json!({
            "id": "1", "name": "n", "state": state, "toolboxProxyUrl": "http://t", "aFieldOfNextYear": {},
        });
        let remote: Remote = serde_json::from_value(json).unwrap();
        assert_eq!(remote.state.phase(), phase);
    }
}
