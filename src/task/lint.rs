//! Tells everything that is wrong with a task file, before a run spends anything on it.

use serde::Serialize;

use super::document::Document;
use super::error::{self, TaskError};
use super::name::CheckboxId;

/// How strict the linter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LintRules {
    /// The least number of checkboxes.
    pub min_checkboxes: usize,
}

impl Default for LintRules {
    fn default() -> Self {
        Self { min_checkboxes: 2 }
    }
}

/// One thing that keeps a task from being run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where, from 1; `None` when there is no file.
    pub line: Option<usize>,
    /// Which rule it breaks.
    pub rule: Rule,
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub fix: String,
}

/// What a task file must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The file exists.
    FileExists,
    /// The frontmatter can be read.
    Frontmatter,
    /// Every key is known and there once.
    KnownKeys,
    /// Every value is of its type and in its range.
    Values,
    /// The keys no run can do without are there.
    RequiredKeys,
    /// What the run may spend is bounded.
    SpendLimit,
    /// There are enough checkboxes to tell progress by.
    EnoughCheckboxes,
    /// Every id names one thing.
    UniqueIds,
    /// Every checkbox can be verified.
    Verification,
    /// Every code block and comment is closed.
    Closed,
    /// The templates of the pull request can be rendered.
    Templates,
}

/// Everything that is wrong with a task file, by line; `None` is a file that does not exist.
#[must_use]
pub fn lint(text: Option<&str>, rules: &LintRules) -> Vec<Finding> {
    let Some(text) = text else {
        return vec![Finding {
            line: None,
            rule: Rule::FileExists,
            reason: "there is no task file".to_owned(),
            fix: "write `ralph_task.md`, or let `ralph init` write an example".to_owned(),
        }];
    };
    let document = Document::read(text);
    let mut findings: Vec<Finding> = document.errors.iter().map(Finding::from).collect();
    findings.extend(missing_budgets(&document));
    findings.extend(too_few_checkboxes(&document, *rules));
    findings.extend(unverified_checkboxes(&document));
    findings.sort_by_key(|finding| finding.line);
    findings
}

impl From<&TaskError> for Finding {
    fn from(error: &TaskError) -> Self {
        Self {
            line: Some(error.line()),
            rule: rule_broken_by(error),
            reason: error.to_string(),
            fix: error.hint(),
        }
    }
}

fn rule_broken_by(error: &TaskError) -> Rule {
    match error {
        TaskError::NoFrontmatter | TaskError::UnclosedFrontmatter | TaskError::Yaml { .. } => {
            Rule::Frontmatter
        }
        TaskError::UnknownKey { .. } | TaskError::DuplicateKey { .. } => Rule::KnownKeys,
        TaskError::MissingKey { .. } => Rule::RequiredKeys,
        TaskError::BadValue { .. } => Rule::Values,
        TaskError::DuplicateId { .. } => Rule::UniqueIds,
        TaskError::EmptyVerify { .. } | TaskError::StrayVerify { .. } => Rule::Verification,
        TaskError::Unclosed { .. } => Rule::Closed,
        TaskError::Template { .. } => Rule::Templates,
    }
}

/// The configuration has defaults for these, but a task that costs money says itself when it ends.
fn missing_budgets(document: &Document) -> Vec<Finding> {
    let Some(keys) = &document.keys else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = ["max_iterations", "max_wall_time_minutes"]
        .into_iter()
        .filter(|key| !keys.contains(*key))
        .map(|key| Finding::from(&TaskError::MissingKey { key }))
        .collect();
    if !keys.contains("max_cost_usd_estimate") && !keys.contains("max_tokens_total") {
        findings.push(Finding {
            line: Some(1),
            rule: Rule::SpendLimit,
            reason: "neither `max_cost_usd_estimate` nor `max_tokens_total` is set".to_owned(),
            fix: format!(
                "add {} or {}",
                error::example("max_cost_usd_estimate"),
                error::example("max_tokens_total")
            ),
        });
    }
    findings
}

fn too_few_checkboxes(document: &Document, rules: LintRules) -> Option<Finding> {
    let checkboxes = &document.criteria.checkboxes;
    (checkboxes.len() < rules.min_checkboxes).then(|| Finding {
        line: Some(checkboxes.last().map_or(1, |last| last.line)),
        rule: Rule::EnoughCheckboxes,
        reason: format!(
            "{} of at least {} checkboxes",
            checkboxes.len(),
            rules.min_checkboxes
        ),
        fix: "add criteria of success like - [ ] M1.1 The login survives a restart".to_owned(),
    })
}

/// Says nothing where a `verify:` or the global list is there but unusable: that is a finding already.
fn unverified_checkboxes(document: &Document) -> Vec<Finding> {
    if document
        .keys
        .as_ref()
        .is_none_or(|keys| keys.contains("verify_commands"))
    {
        return Vec::new();
    }
    let has_unusable_verify = |of: &CheckboxId| {
        let is_that = |error: &TaskError| matches!(error, TaskError::EmptyVerify { id, .. } if id == of);
        document.errors.iter().any(is_that)
    };
    let unverified = document
        .criteria
        .checkboxes
        .iter()
        .filter(|checkbox| checkbox.verify.is_empty());
    unverified
        .filter(|checkbox| !has_unusable_verify(&checkbox.id))
        .map(|checkbox| Finding {
            line: Some(checkbox.line),
            rule: Rule::Verification,
            reason: format!("nothing verifies {}", checkbox.id),
            fix: format!(
                "add - verify: `cargo test` under it, or {} to the frontmatter",
                error::example("verify_commands")
            ),
        })
        .collect()
}
