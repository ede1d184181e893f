//! The task file `ralph_task.md`.
//!
//! A task file is YAML frontmatter ([`Frontmatter`]) and Markdown with checkboxes, the success criteria ([`Checkbox`]).
//! [`Task::parse`] reads one, [`lint`] reports every mistake in one, and [`render_ticks`] writes the verified ticks into
//! its text.
//!
//! ```
//! use ralph::task::{LintRule, Task, lint, starter};
//!
//! let task = Task::parse(starter::TASK)?;
//! println!("{}: {} checkboxes", task.title(), task.checkboxes.len());
//! // The example is not a task yet.
//! assert_eq!(lint(Some(starter::TASK), 2)[0].rule, LintRule::Placeholders);
//! # Ok::<(), ralph::task::TaskError>(())
//! ```

mod checkbox;
mod document;
mod edit;
mod error;
mod fields;
mod frontmatter;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod inert_markdown;
mod lint;
mod markdown;
mod name;
mod project;
mod pull_request;
mod pull_request_body;
mod pull_request_template;
mod setup;
mod spec_issue;
pub mod starter;
mod ticks;
mod yaml;

pub use checkbox::Checkbox;
pub use document::body;
pub use error::{LintRule, LintSeverity, TaskError};
pub use frontmatter::{Frontmatter, PullRequestOptions, PullRequestWhen, SandboxResources};
pub use lint::lint;
pub use name::{BranchName, CheckboxId, MilestoneId, Slug, TaskId};
pub use project::ProjectFacts;
pub use pull_request::{
    AgentFact, BlockedHostFact, CheckboxCostFact, CheckboxFact, EvidenceFact, FileFact, FlagFact, ImageFact,
    InterventionFact, IterationFact, NetworkFact, PullRequestFacts, PullRequestTemplateError,
    PullRequestText, RiskFacts, SignatureFact, render_pull_request,
};
pub use setup::{LOCK_FILES, proposed_setup};
pub use spec_issue::{SpecChecks, SpecIssue, SpecStep, SpecStepState, mark_steps_done};
pub use ticks::{render_ticks, ticked_ids};

use document::TaskDocument;

/// A parsed task file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its settings.
    pub frontmatter: Frontmatter,
    /// Its success criteria, in order.
    pub checkboxes: Vec<Checkbox>,
    heading: Option<String>,
}

impl Task {
    /// Parses a task file. Returns the first mistake; [`lint`] reports all of them.
    pub fn parse(text: &str) -> Result<Self, TaskError> {
        let document = TaskDocument::parse(text);
        if let Some(error) = document.errors.into_iter().next() {
            return Err(error);
        }
        Ok(Self {
            frontmatter: document.frontmatter.ok_or_else(TaskError::no_frontmatter)?,
            checkboxes: document.criteria.checkboxes,
            heading: document.criteria.title,
        })
    }

    /// The title: the first heading, or else the id.
    #[must_use]
    pub fn title(&self) -> &str {
        self.heading
            .as_deref()
            .unwrap_or(self.frontmatter.task_id.as_str())
    }

    /// The shell commands that verify a checkbox: its own, or the task's `verify_commands` if it has none.
    #[must_use]
    pub fn verify_commands<'a>(&'a self, checkbox: &'a Checkbox) -> &'a [String] {
        if checkbox.verify.is_empty() {
            &self.frontmatter.verify_commands
        } else {
            &checkbox.verify
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const WHOLE: &str = "\
---
task_id: fix-login
repo_url: git@example.com:team/app.git
base_branch: \"1.10\"
target_branch_prefix: ralph/
slug: login-timeout
sandbox_provider: docker
sandbox_image: ralph:latest
sandbox_resources: { vcpu: 4, memory_gib: 8, disk_gib: 20 }
model_profile_default: default-cheap
model_profile_fallback: strong-doctor
max_iterations: 12
max_wall_time_minutes: 90
max_cost_usd_estimate: 2.5
max_tokens_total: 2000000
max_consecutive_gutter: 3
test_command: true
verify_commands:
  - cargo test
pr:
  draft: true
  labels: [ralph, bug]
  title_template: \"{{ task_id }}\"
  body_template: |
    - [ ] reviewed
    {{ summary }}
---
# Fix the login

### Milestone M1 The session

- [ ] M1.1 It survives a restart
  - verify: `cargo test session`
- [x] It says why it ended
";

    #[test]
    fn every_key_is_read() {
        let Frontmatter { pr, .. } = Task::parse(WHOLE).unwrap().frontmatter;
        assert!(pr.draft);
        assert_eq!(pr.labels, ["ralph", "bug"]);
        assert_eq!(pr.title_template.unwrap(), "{{ task_id }}");
        assert_eq!(pr.body_template.unwrap(), "- [ ] reviewed\n{{ summary }}\n");

        let read = Task::parse(WHOLE).unwrap().frontmatter;
        assert_eq!(read.task_id.as_str(), "fix-login");
        assert_eq!(read.repo_url.as_deref(), Some("git@example.com:team/app.git"));
        assert_eq!(read.base_branch.unwrap().as_str(), "1.10");
        assert_eq!(read.target_branch_prefix.unwrap().as_str(), "ralph");
        assert_eq!(read.slug.unwrap().as_str(), "login-timeout");
        assert_eq!(read.sandbox_resources.disk_gib.map(u32::from), Some(20));
        assert_eq!(read.test_command, "true");
        assert_eq!(read.verify_commands, ["cargo test"]);
    }

    #[test]
    fn the_configuration_is_overridden_by_what_the_task_sets() {
        let overrides = Task::parse(WHOLE).unwrap().frontmatter.overrides();
        let expected = [
            ("sandbox.type", "docker"),
            ("sandbox.image", "ralph:latest"),
            ("sandbox.resources.cpus", "4"),
            ("sandbox.resources.memory", "8g"),
            ("sandbox.resources.disk", "20g"),
            ("default_profile", "default-cheap"),
            ("fallback_profile", "strong-doctor"),
            ("budget.max_iterations", "12"),
            ("budget.max_wall_time_minutes", "90"),
            ("budget.max_cost_usd_estimate", "2.5"),
            ("budget.max_tokens_total", "2000000"),
            ("budget.max_consecutive_gutter", "3"),
        ];
        assert_eq!(overrides, expected.map(|(key, value)| (key, value.to_owned())));

        let bare = Task::parse("---\ntask_id: t\ntest_command: t\n---\n").unwrap();
        assert_eq!(bare.frontmatter.overrides(), []);
    }

    #[test]
    fn a_setting_of_the_task_is_found_in_its_text() {
        let placed = Task::parse(WHOLE).unwrap().frontmatter.placed_overrides(WHOLE);
        let lines: Vec<&str> = WHOLE.lines().collect();
        for (key, value, (line, column)) in placed {
            let rest = &lines[line - 1][column - 1..];
            assert!(rest.starts_with(value.trim_end_matches('g')), "{key}: {rest}");
        }
    }

    #[test]
    fn a_checkbox_is_verified_by_its_own_commands_else_by_all() {
        let task = Task::parse(WHOLE).unwrap();
        let commands: Vec<_> = task
            .checkboxes
            .iter()
            .map(|checkbox| task.verify_commands(checkbox))
            .collect();
        assert_eq!(commands, [["cargo test session"], ["cargo test"]]);
    }

    #[test]
    fn the_title_is_the_first_heading_else_the_id() {
        assert_eq!(Task::parse(WHOLE).unwrap().title(), "Fix the login");
        let bare = Task::parse("---\ntask_id: t-1\ntest_command: t\n---\n").unwrap();
        assert_eq!(bare.title(), "t-1");
    }

    #[test]
    fn the_frontmatter_has_no_checkboxes() {
        assert_eq!(Task::parse(WHOLE).unwrap().checkboxes.len(), 2);
    }

    #[test]
    fn the_body_has_no_frontmatter() {
        assert!(body(WHOLE).starts_with("# Fix the login\n"));
        assert_eq!(body("no frontmatter"), "no frontmatter");
        assert_eq!(body("---\na: b\n---"), "");
    }

    #[rstest]
    #[case::unix("\n")]
    #[case::windows("\r\n")]
    fn line_breaks_and_a_byte_order_mark_change_nothing(#[case] line_break: &str) {
        let text = format!("\u{feff}{}", WHOLE.replace('\n', line_break));
        assert_eq!(
            Task::parse(&text).unwrap().checkboxes,
            Task::parse(WHOLE).unwrap().checkboxes
        );
    }

    #[rstest]
    #[case::misspelt(
        "max_iteration: 3",
        "unknown key `max_iteration`; did you mean `max_iterations`?"
    )]
    #[case::misspelt_in_a_section(
        "pr: { drafts: true }",
        "unknown key `pr.drafts`; did you mean `pr.draft`?"
    )]
    #[case::far_from_any("colour: red", "unknown key `colour`")]
    #[case::twice("task_id: again", "duplicate key `task_id` (first set on line 2)")]
    #[case::word_for_number(
        "max_iterations: many",
        "`max_iterations` is `many`; expected a whole number above 0"
    )]
    #[case::quoted(
        "max_iterations: \"3\"",
        "`max_iterations` is the text \"3\"; expected a whole number above 0"
    )]
    #[case::zero(
        "max_tokens_total: 0",
        "`max_tokens_total` is `0`; expected a whole number above 0"
    )]
    #[case::endless(
        "max_cost_usd_estimate: inf",
        "`max_cost_usd_estimate` is `inf`; expected a number of dollars above 0"
    )]
    #[case::free(
        "max_cost_usd_estimate: 0.0",
        "`max_cost_usd_estimate` is `0.0`; expected a number of dollars above 0"
    )]
    #[case::text_for_list(
        "verify_commands: ls",
        "`verify_commands` is `ls`; expected a list of shell commands, none of them blank"
    )]
    #[case::blank_in_list(
        "verify_commands: [\" \"]",
        "`verify_commands` is a list; expected a list of shell commands, none of them blank"
    )]
    #[case::list_for_text(
        "slug: [a]",
        "`slug` is a list; expected 1 to 64 letters, digits, `-`, `_` or single `.`, beginning and ending with a letter or digit"
    )]
    #[case::word_for_truth("pr: { draft: maybe }", "`pr.draft` is `maybe`; expected `true` or `false`")]
    #[case::text_for_section("pr: yes", "`pr` is `yes`; expected a section of its own keys")]
    #[case::option_for_branch(
        "base_branch: --upload-pack=x",
        "`base_branch` is `--upload-pack=x`; expected a branch name that git accepts"
    )]
    #[case::helper_for_address(
        "repo_url: \"ext::sh -c x\"",
        "`repo_url` is the text \"ext::sh -c x\"; expected the address of a git repository"
    )]
    #[case::alias(
        "slug: *a",
        "the frontmatter is not valid YAML: while parsing node, found unknown anchor (column 7)"
    )]
    #[case::tag(
        "slug: !x a",
        "the frontmatter is not valid YAML: tags (`!name`) are not supported (column 10)"
    )]
    fn a_mistake_in_the_frontmatter_is_reported_with_its_line(#[case] line: &str, #[case] message: &str) {
        let text = format!("---\ntask_id: t\ntest_command: t\n{line}\n---\n");
        let error = Task::parse(&text).unwrap_err();
        assert_eq!((error.line, error.to_string().as_str()), (Some(4), message));
        assert!(!error.fix.contains("..."), "no example for {error:?}");
    }

    fn task_text() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            Just("---".to_owned()),
            "(task_id|pr|max_iterations|test_command): [ -~]{0,10}",
            "[ \t]{0,3}[-*] \\[[ xX]\\] (M1\\.[0-9] )?[a-z`]{0,6}",
            "[ \t]{0,6}- verify: `{0,2}[a-z ]{0,5}`{0,2}",
            "(```|~~~|<!--|-->|### Milestone M[0-9]).{0,4}",
            any::<String>(),
        ];
        let line_break = prop_oneof![Just("\n"), Just("\r\n")];
        prop::collection::vec((line, line_break), 0..25).prop_map(|lines| {
            lines
                .into_iter()
                .map(|(line, line_break)| line + line_break)
                .collect()
        })
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in task_text()) {
            let parsed = Task::parse(&text).is_ok();
            let findings = lint(Some(&text), 0);
            prop_assert!(parsed || !findings.is_empty());
            prop_assert!(findings.iter().all(|finding| !finding.reason.is_empty() && !finding.fix.is_empty()));
        }

        #[test]
        fn no_frontmatter_makes_the_parser_panic(yaml in any::<String>()) {
            let _ = Task::parse(&format!("---\n{yaml}\n---\n"));
        }

        #[test]
        fn no_yaml_like_frontmatter_makes_the_parser_panic(yaml in "([a-z_]{1,4}|[ \n\t:\\[\\]{},&*!|>'\"%@`#?-]){0,60}") {
            let _ = Task::parse(&format!("---\n{yaml}\n---\n"));
        }
    }
}
