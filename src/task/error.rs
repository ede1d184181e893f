//! What can be wrong with a task file, and what to do about it.

use thiserror::Error;

use super::name::CheckboxId;

/// What is wrong with a task file. Each says where ([`TaskError::line`]) and what to do ([`TaskError::hint`]).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TaskError {
    /// The file does not begin with frontmatter.
    #[error("the file does not begin with frontmatter")]
    NoFrontmatter,
    /// The frontmatter has no end.
    #[error("the frontmatter is never closed")]
    UnclosedFrontmatter,
    /// The frontmatter is no YAML, or uses a part of YAML that task files do without.
    #[error("the frontmatter cannot be read as YAML: {problem} (column {column})")]
    Yaml {
        /// Where.
        line: usize,
        /// Where in the line, from 1.
        column: usize,
        /// What the YAML parser says.
        problem: String,
    },
    /// A key that does not exist.
    #[error("unknown key `{key}`{}", did_you_mean(suggestion.as_deref()))]
    UnknownKey {
        /// Where.
        line: usize,
        /// The key, with its section: `pr.drafts`.
        key: String,
        /// The key that was probably meant.
        suggestion: Option<String>,
    },
    /// A key that is there twice.
    #[error("the key `{key}` is set again; it was set on line {first} already")]
    DuplicateKey {
        /// Where.
        line: usize,
        /// The key, with its section.
        key: String,
        /// Where it was set first.
        first: usize,
    },
    /// A key that must be there.
    #[error("`{key}` is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A value of the wrong type, or out of its range.
    #[error("`{key}` is {found}; expected {expected}")]
    BadValue {
        /// Where.
        line: usize,
        /// The key, with its section.
        key: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// A template that cannot be rendered.
    #[error("`{key}` cannot be rendered: {problem}")]
    Template {
        /// Where.
        line: usize,
        /// The key, with its section.
        key: String,
        /// What the template engine says, with the line of the template.
        problem: String,
    },
    /// A name that two checkboxes, or two milestones, have.
    #[error("the id `{id}` is used again; it was used on line {first} already")]
    DuplicateId {
        /// Where.
        line: usize,
        /// The id.
        id: String,
        /// Where it was used first.
        first: usize,
    },
    /// A `verify:` line without a command.
    #[error("this `verify:` of {id} holds no command between backticks")]
    EmptyVerify {
        /// Where.
        line: usize,
        /// The checkbox.
        id: CheckboxId,
    },
    /// A `verify:` line that is under no checkbox.
    #[error("this `verify:` is under no checkbox")]
    StrayVerify {
        /// Where.
        line: usize,
    },
    /// A code block or a comment without an end: what follows would silently not count.
    #[error("this {} is never closed, so no checkbox after it counts", enclosure.noun())]
    Unclosed {
        /// Where it begins.
        line: usize,
        /// What it is.
        enclosure: Enclosure,
    },
}

/// What hides Markdown from being read as such.
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
    /// The line it is about, from 1.
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

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NoFrontmatter => {
                "begin the file with a line `---`, the settings as YAML, and another line `---`".to_owned()
            }
            Self::UnclosedFrontmatter => "end the settings with a line `---`".to_owned(),
            Self::Yaml { .. } => {
                "mend the YAML; put text that holds `: `, `#` or quotes between quotes".to_owned()
            }
            Self::UnknownKey {
                suggestion: Some(meant),
                ..
            } => format!("write `{meant}`, or remove the key"),
            Self::UnknownKey {
                suggestion: None,
                key,
                ..
            } => format!("remove `{key}`"),
            Self::DuplicateKey { .. } => "keep one of the two".to_owned(),
            Self::MissingKey { key } => format!("add {}", example(key)),
            Self::BadValue { key, .. } => format!("write it like {}", example(key)),
            Self::Template { key, .. } => {
                format!("use only the variables of a pull request, like {}", example(key))
            }
            Self::DuplicateId { id, .. } => format!("give one of them another id than `{id}`"),
            Self::EmptyVerify { .. } => "write it like - verify: `cargo test`".to_owned(),
            Self::StrayVerify { .. } => {
                "indent it under the checkbox it verifies, or begin it with another word".to_owned()
            }
            Self::Unclosed {
                enclosure: Enclosure::Code,
                ..
            } => "close it with a line of as many ` or ~ as it begins with".to_owned(),
            Self::Unclosed {
                enclosure: Enclosure::Comment,
                ..
            } => "close it with -->, or put <!-- between backticks if it is meant as text".to_owned(),
        }
    }
}

/// How a key is written, for the hints.
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
