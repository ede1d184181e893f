//! The shape of an answer. The JSON schema shown to the model is generated from these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One whole answer of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// One or two sentences: what this iteration does and why.
    pub summary: String,
    /// What to do, in order. The first action that fails ends the list.
    pub actions: Vec<Action>,
    /// What is finished with this answer. Checked, never believed.
    #[serde(default)]
    pub claims: Claims,
}

/// One thing to do in the clone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Run a shell line.
    Run {
        /// The shell line.
        command: String,
        /// The directory, relative to the clone; its root when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Seconds after which it is ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u64>,
    },
    /// Change one file by a unified diff.
    Patch {
        /// The file, relative to the clone.
        path: String,
        /// The unified diff of that one file.
        patch: String,
    },
    /// Write one file.
    Write {
        /// The file, relative to the clone.
        path: String,
        /// Whether to add to the end instead of replacing the file.
        #[serde(default)]
        append: bool,
        /// The content.
        content: String,
    },
    /// Commit.
    Commit {
        /// The commit message.
        message: String,
        /// The paths to commit, relative to the clone; everything changed when empty.
        #[serde(default)]
        paths: Vec<String>,
    },
    /// End this iteration and begin a fresh one.
    Rotate {
        /// Why.
        reason: String,
    },
    /// Ask for a person.
    Pause {
        /// Why.
        reason: String,
    },
    /// Say that the whole task is done. The runner checks it.
    StopSuccess {
        /// Why.
        reason: String,
    },
    /// Say that the task cannot be done.
    StopFailure {
        /// Why.
        reason: String,
    },
}

/// What the agent says is finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The ids of the checkboxes that hold now, for example `M1.1`.
    #[serde(default)]
    pub checkboxes_checked: Vec<String>,
    /// The milestones of which every checkbox holds now, for example `M1`.
    #[serde(default)]
    pub milestones_completed: Vec<String>,
}
