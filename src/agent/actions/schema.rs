//! The format of an answer. The JSON schema in the prompt is generated from these types.

use std::fmt;
use std::sync::LazyLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::agent::AgentConclusion;
use crate::text::counted;

use super::diff::Patch;
use super::path::RelPath;

/// The most actions one answer may have.
const MAX_ACTIONS: usize = 50;
/// The most characters a file's content or a diff may have.
const MAX_CONTENT: usize = 500_000;
/// The most characters a shell line, a message or a reason may have.
const MAX_TEXT: usize = 10_000;
/// The most ids one answer may report, and the most paths one commit may name.
const MAX_NAMES: usize = 500;
/// The longest timeout of a `run` action, in seconds.
const MAX_TIMEOUT_S: u64 = 3600;

/// A pattern for text that is not only white space.
pub(super) const NOT_BLANK: &str = r"\S";

/// The value of `format` in the JSON schema for a path that may be the clone's root.
pub(super) const PATH_OR_ROOT: &str = "path-in-clone-or-dot";

/// One whole answer of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionsAnswer {
    /// One or two sentences: what this iteration does and why.
    #[schemars(length(max = MAX_TEXT), regex(pattern = NOT_BLANK))]
    pub summary: String,
    /// What to do, in order. The first action that fails ends the list.
    #[schemars(length(max = MAX_ACTIONS))]
    pub actions: Vec<AgentAction>,
    /// What is finished with this answer. Checked, never believed.
    #[serde(default, rename = "claims")]
    pub progress: ReportedProgress,
}

/// One thing to do in the clone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentAction {
    /// Run a shell line.
    Run {
        /// The shell line.
        #[schemars(length(max = MAX_TEXT), regex(pattern = NOT_BLANK))]
        command: String,
        /// The directory, relative to the clone; its root when absent.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "directory"
        )]
        #[schemars(with = "Option<String>", extend("format" = PATH_OR_ROOT))]
        cwd: Option<RelPath>,
        /// Seconds after which it is ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = MAX_TIMEOUT_S))]
        timeout_s: Option<u64>,
    },
    /// Change one file by a unified diff.
    Patch {
        /// The file, relative to the clone.
        path: RelPath,
        /// The unified diff of that one file.
        #[schemars(length(max = MAX_CONTENT))]
        patch: Patch,
    },
    /// Write one file.
    Write {
        /// The file, relative to the clone.
        path: RelPath,
        /// Whether to add to the end instead of replacing the file.
        #[serde(default)]
        append: bool,
        /// The content.
        #[schemars(length(max = MAX_CONTENT))]
        content: String,
    },
    /// Commit.
    Commit {
        /// The commit message.
        #[schemars(length(max = MAX_TEXT), regex(pattern = NOT_BLANK))]
        message: String,
        /// The paths to commit, relative to the clone; everything changed when empty.
        #[serde(default, deserialize_with = "committed")]
        #[schemars(length(max = MAX_NAMES), extend("items" = { "type": "string", "format": PATH_OR_ROOT }))]
        paths: Vec<RelPath>,
    },
    /// End this iteration and begin a fresh one.
    Rotate {
        /// Why.
        #[schemars(length(max = MAX_TEXT), regex(pattern = NOT_BLANK))]
        reason: String,
    },
    /// Ask for a person.
    Pause {
        /// Why.
        #[schemars(length(max = MAX_TEXT), regex(pattern = NOT_BLANK))]
        reason: String,
    },
    /// Say that the whole task is done. The runner checks it.
    StopSuccess {
        /// Why.
        #[schemars(length(max = MAX_TEXT), regex(pattern = NOT_BLANK))]
        reason: String,
    },
    /// Say that the task cannot be done.
    StopFailure {
        /// Why.
        #[schemars(length(max = MAX_TEXT), regex(pattern = NOT_BLANK))]
        reason: String,
    },
}

/// What the agent says is finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedProgress {
    /// The ids of the checkboxes that hold now, for example `M1.1`.
    #[serde(default)]
    #[schemars(length(max = MAX_NAMES), inner(length(max = 100), regex(pattern = NOT_BLANK)))]
    pub checkboxes_checked: Vec<String>,
    /// The milestones of which every checkbox holds now, for example `M1`.
    #[serde(default)]
    #[schemars(length(max = MAX_NAMES), inner(length(max = 100), regex(pattern = NOT_BLANK)))]
    pub milestones_completed: Vec<String>,
}

impl AgentAction {
    /// The value of the field `type`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run { .. } => "run",
            Self::Patch { .. } => "patch",
            Self::Write { .. } => "write",
            Self::Commit { .. } => "commit",
            Self::Rotate { .. } => "rotate",
            Self::Pause { .. } => "pause",
            Self::StopSuccess { .. } => "stop_success",
            Self::StopFailure { .. } => "stop_failure",
        }
    }

    /// How it ends the iteration; `None` if it does not.
    #[must_use]
    pub fn conclusion(&self) -> Option<AgentConclusion> {
        match self {
            Self::Run { .. } | Self::Patch { .. } | Self::Write { .. } | Self::Commit { .. } => None,
            Self::Rotate { reason } => Some(AgentConclusion::Rotate {
                reason: reason.clone(),
            }),
            Self::Pause { reason } => Some(AgentConclusion::Pause {
                reason: reason.clone(),
            }),
            Self::StopSuccess { reason } => Some(AgentConclusion::StopSuccess {
                reason: reason.clone(),
            }),
            Self::StopFailure { reason } => Some(AgentConclusion::StopFailure {
                reason: reason.clone(),
            }),
        }
    }
}

/// The JSON schema of an [`ActionsAnswer`]. It is the same in every process.
pub(super) fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        settings
            .into_generator()
            .into_root_schema_for::<ActionsAnswer>()
            .to_value()
    });
    &SCHEMA
}

/// Deserializes `cwd`, where `.` is the clone's root.
fn directory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RelPath>, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        None => Ok(None),
        Some(text) => RelPath::below_root(&text).map_err(serde::de::Error::custom),
    }
}

/// Deserializes the paths of a commit. If one is `.`, everything is committed.
fn committed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RelPath>, D::Error> {
    let mut paths = Vec::new();
    for text in Vec::<String>::deserialize(deserializer)? {
        match RelPath::below_root(&text).map_err(serde::de::Error::custom)? {
            Some(path) => paths.push(path),
            None => return Ok(Vec::new()),
        }
    }
    Ok(paths)
}

/// One line for logs, without file contents.
impl fmt::Display for AgentAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Run {
                command: text,
                cwd: None,
                ..
            }
            | Self::Commit { message: text, .. }
            | Self::Rotate { reason: text }
            | Self::Pause { reason: text }
            | Self::StopSuccess { reason: text }
            | Self::StopFailure { reason: text } => write!(f, "{name}: {}", short_first_line(text)),
            Self::Run {
                command,
                cwd: Some(cwd),
                ..
            } => write!(f, "{name} in {cwd}: {}", short_first_line(command)),
            Self::Patch { path, patch } => {
                write!(f, "{name}: {path} ({})", counted(patch.hunk_count(), "hunk"))
            }
            Self::Write {
                path,
                append,
                content,
            } => {
                let name = if *append { "append" } else { name };
                write!(f, "{name}: {path} ({})", counted(content.len(), "byte"))
            }
        }
    }
}

/// The first line that is not blank, shortened.
fn short_first_line(text: &str) -> String {
    const SHOWN: usize = 100;
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    let mut line: String = first.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if line.len() < text.trim().len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn action(value: serde_json::Value) -> AgentAction {
        serde_json::from_value(value).unwrap()
    }

    #[rstest]
    #[case(json!({"type": "run", "command": "cargo test"}), "run: cargo test")]
    #[case(json!({"type": "run", "command": "make", "cwd": "sub/"}), "run in sub: make")]
    #[case(json!({"type": "run", "command": "\nset -e\nmake", "cwd": "."}), "run: set -e…")]
    #[case(json!({"type": "write", "path": "./a.rs", "content": "SECRET"}), "write: a.rs (6 bytes)")]
    #[case(json!({"type": "write", "path": "a.rs", "content": "!", "append": true}), "append: a.rs (1 byte)")]
    #[case(json!({"type": "patch", "path": "a.rs", "patch": "@@\n-SECRET\n+x\n"}), "patch: a.rs (1 hunk)")]
    #[case(json!({"type": "commit", "message": "Add a\n\nWhy."}), "commit: Add a…")]
    #[case(json!({"type": "rotate", "reason": "stuck"}), "rotate: stuck")]
    #[case(json!({"type": "pause", "reason": "which?"}), "pause: which?")]
    #[case(json!({"type": "stop_success", "reason": "done"}), "stop_success: done")]
    #[case(json!({"type": "stop_failure", "reason": "a\u{1b}[31mb"}), "stop_failure: a[31mb…")]
    fn an_action_is_one_line_without_content(#[case] value: serde_json::Value, #[case] line: &str) {
        assert_eq!(action(value).to_string(), line);
    }

    #[rstest]
    #[case(json!([]), &[])]
    #[case(json!(["./a", "b/"]), &["a", "b"])]
    #[case(json!(["a", "."]), &[])]
    fn a_commit_of_the_root_is_one_of_everything(
        #[case] paths: serde_json::Value,
        #[case] expected: &[&str],
    ) {
        let AgentAction::Commit { paths, .. } =
            action(json!({"type": "commit", "message": "x", "paths": paths}))
        else {
            panic!("not a commit");
        };
        assert_eq!(paths.iter().map(RelPath::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_action_is_stored_as_it_was_answered() {
        let value = json!({"type": "patch", "path": "a.rs", "patch": "@@\n-a\n+b\n"});
        assert_eq!(serde_json::to_value(action(value.clone())).unwrap(), value);
    }
}
