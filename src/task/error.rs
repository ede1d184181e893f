//! Mistakes in a task file: the rule that each breaks, and how to fix it.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use crate::text::cut_middle;

/// The longest message, in characters. What a message quotes may be a file by mistake.
const LONGEST_MESSAGE: usize = 400;

/// One mistake in a task file.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, JsonSchema)]
#[error("{reason}")]
pub struct TaskError {
    /// The line, from 1. `None` if there is no file.
    pub line: Option<usize>,
    /// The rule that it breaks.
    pub rule: LintRule,
    /// Whether it prevents the task from being run.
    pub severity: LintSeverity,
    /// What is wrong.
    pub reason: String,
    /// How to fix it.
    pub fix: String,
}

impl TaskError {
    pub(super) fn new(
        line: usize,
        rule: LintRule,
        reason: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            line: Some(line),
            rule,
            severity: LintSeverity::Error,
            reason: cut(&reason.into()),
            fix: cut(&fix.into()),
        }
    }

    /// The same mistake as a warning.
    pub(super) fn into_warning(self) -> Self {
        Self {
            severity: LintSeverity::Warning,
            ..self
        }
    }

    pub(super) fn no_frontmatter() -> Self {
        Self::new(
            1,
            LintRule::Frontmatter,
            "the file does not begin with frontmatter",
            "begin the file with a line `---`, the settings as YAML, and another line `---`",
        )
    }

    pub(super) fn missing_key(key: &str) -> Self {
        let fix = format!("add {}", example(key));
        Self::new(1, LintRule::RequiredKeys, format!("`{key}` is missing"), fix)
    }
}

fn cut(message: &str) -> String {
    cut_middle(message, LONGEST_MESSAGE).into_owned()
}

/// Whether a mistake in a task file prevents a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LintSeverity {
    /// A run with the task is refused.
    Error,
    /// The task can be run, but it may not mean what it seems to say.
    Warning,
}

/// A rule for task files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LintRule {
    /// The file exists.
    FileExists,
    /// The frontmatter can be read.
    Frontmatter,
    /// Every key is known and appears once.
    KnownKeys,
    /// Every value has the right type and range.
    Values,
    /// The required keys are set.
    RequiredKeys,
    /// The run has a cost or token limit.
    SpendLimit,
    /// Nothing of the example of `ralph init` is left.
    Placeholders,
    /// What looks like a checkbox is one.
    Checkboxes,
    /// There are enough checkboxes to show progress.
    EnoughCheckboxes,
    /// Every id is unique.
    UniqueIds,
    /// Every checkbox can be verified.
    Verification,
    /// Every code span of a `verify:` is a command.
    IgnoredCode,
    /// Every code block and comment is closed.
    Closed,
    /// The templates of the pull request can be rendered.
    Templates,
}

/// An example of a key, for hints.
pub(super) fn example(key: &str) -> String {
    let value = match key {
        "task_id" | "branch" => "fix-login",
        "repo_url" => "https://github.com/owner/name",
        "base_branch" | "base" => "main",
        "depends" => "[11, 17]",
        "target_branch_prefix" => "ralph",
        "slug" | "target_branch_slug" => "login-timeout",
        "sandbox_provider" => "docker",
        "sandbox_image" => "ralph:latest",
        "sandbox_resources" => "{ vcpu: 4, memory_gib: 8, disk_gib: 20 }",
        "sandbox_resources.vcpu" => "4",
        "sandbox_resources.memory_gib" => "8",
        "sandbox_resources.disk_gib" => "20",
        "model_profile_default" => "default-cheap",
        "model_profile_fallback" => "strong-doctor",
        "max_iterations" => "30",
        "max_wall_time_minutes" => "120",
        "max_cost_usd_estimate" => "10",
        "max_tokens_total" => "2000000",
        "max_consecutive_gutter" => "3",
        "test_command" => "cargo test",
        "setup_command" => "npm ci",
        "verify_commands" => "[\"cargo test\"]",
        "pr" => "{ draft: true, labels: [ralph] }",
        "pr.draft" => "true",
        "pr.labels" => "[ralph]",
        "pr.title_template" => "\"{{ task_id }}: {{ title }}\"",
        "pr.body_template" => "\"{{ summary }}\"",
        _ => "...",
    };
    let name = key.rsplit('.').next().unwrap_or(key);
    format!("`{name}: {value}`")
}
