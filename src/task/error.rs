//! Mistakes in a task file, with hints.

use thiserror::Error;

use super::name::CheckboxId;

/// A mistake in a task file, with its line ([`TaskError::line`]) and a hint ([`TaskError::hint`]).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TaskError {
    /// The file does not begin with frontmatter.
    #[error("the file does not begin with frontmatter")]
    NoFrontmatter,
    /// The closing `---` is missing.
    #[error("the frontmatter is never closed")]
    UnclosedFrontmatter,
    /// The frontmatter is not valid YAML, or uses YAML that task files do not support.
    #[error("the frontmatter is not valid YAML: {problem} (column {column})")]
    Yaml {
        /// The line.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The message of the YAML parser.
        problem: String,
    },
    /// A key that does not exist.
    #[error("unknown key `{key}`{}", did_you_mean(suggestion.as_deref()))]
    UnknownKey {
        /// The line.
        line: usize,
        /// The key, with its section: `pr.drafts`.
        key: String,
        /// The known key that is most similar.
        suggestion: Option<String>,
    },
    /// A duplicate key.
    #[error("duplicate key `{key}` (first set on line {first})")]
    DuplicateKey {
        /// The line.
        line: usize,
        /// The key, with its section.
        key: String,
        /// The line of its first use.
        first: usize,
    },
    /// A required key is missing.
    #[error("`{key}` is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A value of the wrong type, or out of its range.
    #[error("`{key}` is {found}; expected {expected}")]
    BadValue {
        /// The line.
        line: usize,
        /// The key, with its section.
        key: String,
        /// The actual value.
        found: String,
        /// A description of a valid value.
        expected: &'static str,
    },
    /// A template that cannot be rendered.
    #[error("`{key}` cannot be rendered: {problem}")]
    Template {
        /// The line.
        line: usize,
        /// The key, with its section.
        key: String,
        /// The message of the template engine, with the line of the template.
        problem: String,
    },
    /// Two checkboxes, or two milestones, have the same id.
    #[error("duplicate id `{id}` (first used on line {first})")]
    DuplicateId {
        /// The line.
        line: usize,
        /// The id.
        id: String,
        /// The line of its first use.
        first: usize,
    },
    /// A `verify:` line without a command.
    #[error("this `verify:` of {id} contains no command in backticks")]
    EmptyVerify {
        /// The line.
        line: usize,
        /// The checkbox.
        id: CheckboxId,
    },
    /// A `verify:` line that belongs to no checkbox.
    #[error("this `verify:` belongs to no checkbox")]
    StrayVerify {
        /// The line.
        line: usize,
    },
    /// A code block or comment without an end, which would silently hide the checkboxes after it.
    #[error("this {} is never closed, so the checkboxes after it are ignored", enclosure.noun())]
    Unclosed {
        /// The line where it begins.
        line: usize,
        /// Code block or comment.
        enclosure: Enclosure,
    },
}

/// A construct that hides Markdown from the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enclosure {
    /// A fenced code block.
    Code,
    /// An HTML comment.
    Comment,
}

impl Enclosure {
    fn noun(self) -> &'static str {
        match self {
            Self::Code => "code block",
            Self::Comment => "comment",
        }
    }
}

impl TaskError {
    /// The line of the mistake, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        match self {
            Self::NoFrontmatter | Self::UnclosedFrontmatter | Self::MissingKey { .. } => 1,
            Self::Yaml { line, .. }
            | Self::UnknownKey { line, .. }
            | Self::DuplicateKey { line, .. }
            | Self::BadValue { line, .. }
            | Self::Template { line, .. }
            | Self::DuplicateId { line, .. }
            | Self::EmptyVerify { line, .. }
            | Self::StrayVerify { line }
            | Self::Unclosed { line, .. } => *line,
        }
    }

    /// How to fix it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NoFrontmatter => {
                "begin the file with a line `---`, the settings as YAML, and another line `---`".to_owned()
            }
            Self::UnclosedFrontmatter => "end the settings with a line `---`".to_owned(),
            Self::Yaml { .. } => "fix the YAML; put text with `: `, `#` or quotes in quotes".to_owned(),
            Self::UnknownKey {
                suggestion: Some(known),
                ..
            } => format!("write `{known}`, or remove the key"),
            Self::UnknownKey {
                suggestion: None,
                key,
                ..
            } => format!("remove `{key}`"),
            Self::DuplicateKey { .. } => "keep one of the two".to_owned(),
            Self::MissingKey { key } => format!("add {}", example(key)),
            Self::BadValue { key, .. } => format!("write it like {}", example(key)),
            Self::Template { key, .. } => {
                format!("use only the documented variables, like {}", example(key))
            }
            Self::DuplicateId { id, .. } => format!("change one of the two ids `{id}`"),
            Self::EmptyVerify { .. } => "write it like - verify: `cargo test`".to_owned(),
            Self::StrayVerify { .. } => {
                "indent it under the checkbox that it verifies, or start the line with another word"
                    .to_owned()
            }
            Self::Unclosed {
                enclosure: Enclosure::Code,
                ..
            } => "close it with as many ` or ~ as it begins with".to_owned(),
            Self::Unclosed {
                enclosure: Enclosure::Comment,
                ..
            } => "close it with -->, or put <!-- in backticks if it is text".to_owned(),
        }
    }
}

/// An example of a key, for hints.
pub(super) fn example(key: &str) -> String {
    let value = match key {
        "task_id" => "fix-login",
        "repo_url" => "https://github.com/owner/name",
        "base_branch" => "main",
        "target_branch_prefix" => "ralph",
        "slug" => "login-timeout",
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

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion
        .map(|key| format!("; did you mean `{key}`?"))
        .unwrap_or_default()
}
