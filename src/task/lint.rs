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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const HEAD: &str = "---
task_id: t
test_command: make test
max_iterations: 5
max_wall_time_minutes: 9
max_tokens_total: 1000
verify_commands: [make check]
---
";
    const BOXES: &str = "- [ ] M1.1 a\n- [ ] M1.2 b\n";

    type Expected = (usize, Rule, &'static str);

    #[track_caller]
    fn check(text: &str, expected: &[Expected]) {
        let findings = lint(Some(text), &LintRules::default());
        let found: Vec<_> = findings
            .iter()
            .map(|found| (found.line.unwrap(), found.rule, found.reason.as_str()))
            .collect();
        assert_eq!(found, expected);
        let has_fix = |found: &Finding| !found.fix.is_empty() && !found.fix.contains("...");
        assert!(findings.iter().all(has_fix), "{findings:#?}");
    }

    #[test]
    fn a_good_task_has_no_findings() {
        check(&format!("{HEAD}{BOXES}"), &[]);
    }

    #[rstest]
    #[case("task_id: t\n", (1, Rule::RequiredKeys, "`task_id` is missing"))]
    #[case("test_command: make test\n", (1, Rule::RequiredKeys, "`test_command` is missing"))]
    #[case("max_iterations: 5\n", (1, Rule::RequiredKeys, "`max_iterations` is missing"))]
    #[case("max_wall_time_minutes: 9\n", (1, Rule::RequiredKeys, "`max_wall_time_minutes` is missing"))]
    #[case(
        "max_tokens_total: 1000\n",
        (1, Rule::SpendLimit, "neither `max_cost_usd_estimate` nor `max_tokens_total` is set")
    )]
    fn a_setting_left_out_or_left_empty_is_missed(#[case] line: &str, #[case] expected: Expected) {
        check(&format!("{}{BOXES}", HEAD.replace(line, "")), &[expected]);
        let emptied = format!("{}:\n", line.split(':').next().unwrap());
        check(&format!("{}{BOXES}", HEAD.replace(line, &emptied)), &[expected]);
    }

    #[rstest]
    #[case::zero(
        ("max_iterations: 5", "max_iterations: 0"),
        (4, Rule::Values, "`max_iterations` is `0`; expected a whole number above 0")
    )]
    #[case::endless(
        ("max_wall_time_minutes: 9", "max_wall_time_minutes: .inf"),
        (5, Rule::Values, "`max_wall_time_minutes` is `.inf`; expected a whole number above 0")
    )]
    #[case::negative(
        ("max_tokens_total: 1000", "max_tokens_total: -1"),
        (6, Rule::Values, "`max_tokens_total` is `-1`; expected a whole number above 0")
    )]
    #[case::unsafe_name(
        ("task_id: t", "base_branch: a..b\ntask_id: t"),
        (2, Rule::Values, "`base_branch` is `a..b`; expected a branch name that git accepts")
    )]
    #[case::no_list(
        ("[make check]", "make"),
        (7, Rule::Values, "`verify_commands` is `make`; expected a list of shell commands, none of them blank")
    )]
    #[case::misspelt(
        ("max_iterations: 5", "max_iterations: 5\nmax_iteration: 5"),
        (5, Rule::KnownKeys, "unknown key `max_iteration`; did you mean `max_iterations`?")
    )]
    #[case::template(
        ("task_id: t", "task_id: t\npr: { title_template: \"{{ tittle }}\" }"),
        (3, Rule::Templates, "`pr.title_template` cannot be rendered: undefined value (in pr.title_template:1)")
    )]
    #[case::unclosed(
        ("check]\n---\n", "check]\n"),
        (1, Rule::Frontmatter, "the frontmatter is never closed")
    )]
    fn a_mistake_is_found_once(#[case] (from, to): (&str, &str), #[case] expected: Expected) {
        check(&format!("{}{BOXES}", HEAD.replace(from, to)), &[expected]);
    }

    #[rstest]
    #[case::none("text", &[(1, Rule::EnoughCheckboxes, "0 of at least 2 checkboxes")])]
    #[case::one("\n- [ ] M1 a", &[(10, Rule::EnoughCheckboxes, "1 of at least 2 checkboxes")])]
    #[case::same_id(
        "- [ ] M1 a\n- [ ] M1 b",
        &[(10, Rule::UniqueIds, "the id `M1` is used again; it was used on line 9 already")]
    )]
    #[case::empty_verify(
        "- [ ] M1 a\n  - verify: ``\n- [ ] M2 b",
        &[(10, Rule::Verification, "this `verify:` of M1 holds no command between backticks")]
    )]
    #[case::unclosed(
        "- [ ] M1 a\n- [ ] M2 b\n```",
        &[(11, Rule::Closed, "this code block is never closed, so no checkbox after it counts")]
    )]
    fn the_checkboxes_are_looked_at(#[case] body: &str, #[case] expected: &[Expected]) {
        check(&format!("{HEAD}{body}"), expected);
    }

    #[rstest]
    #[case::absent("# none")]
    #[case::empty("verify_commands: []")]
    fn each_checkbox_that_nothing_verifies_is_told(#[case] global: &str) {
        let head = HEAD.replace("verify_commands: [make check]", global);
        check(
            &format!(
                "{head}- [ ] M1 a\n- [ ] M2 b\n  - verify: `ls`\n- [ ] M3 c\n- [ ] M4 d\n  - verify: ``"
            ),
            &[
                (9, Rule::Verification, "nothing verifies M1"),
                (12, Rule::Verification, "nothing verifies M3"),
                (
                    14,
                    Rule::Verification,
                    "this `verify:` of M4 holds no command between backticks",
                ),
            ],
        );
    }

    #[test]
    fn everything_is_told_at_once_and_by_line() {
        check(
            "---\nbase_branch: a b\ncolour: red\nmax_iterations: x\n---\n- [ ] M1 a\n- [ ] M1 b\n",
            &[
                (1, Rule::RequiredKeys, "`task_id` is missing"),
                (1, Rule::RequiredKeys, "`test_command` is missing"),
                (1, Rule::RequiredKeys, "`max_wall_time_minutes` is missing"),
                (
                    1,
                    Rule::SpendLimit,
                    "neither `max_cost_usd_estimate` nor `max_tokens_total` is set",
                ),
                (
                    2,
                    Rule::Values,
                    "`base_branch` is `a b`; expected a branch name that git accepts",
                ),
                (3, Rule::KnownKeys, "unknown key `colour`"),
                (
                    4,
                    Rule::Values,
                    "`max_iterations` is `x`; expected a whole number above 0",
                ),
                (6, Rule::Verification, "nothing verifies M1"),
                (
                    7,
                    Rule::UniqueIds,
                    "the id `M1` is used again; it was used on line 6 already",
                ),
                (7, Rule::Verification, "nothing verifies M1"),
            ],
        );
    }

    #[test]
    fn broken_frontmatter_does_not_hide_the_checkboxes() {
        let text = "---\ntask_id: [\ntest_command: x\n---\n- [ ] M1 a\n- [ ] M1 b\n  - verify: x\n";
        let findings = lint(Some(text), &LintRules::default());
        let found: Vec<_> = findings.iter().map(|found| (found.line, found.rule)).collect();
        let expected = [
            (3, Rule::Frontmatter),
            (6, Rule::UniqueIds),
            (7, Rule::Verification),
        ];
        assert_eq!(
            found,
            expected.map(|(line, rule)| (Some(line), rule)),
            "{findings:#?}"
        );
    }

    #[test]
    fn a_file_without_frontmatter_is_told_all_it_lacks() {
        let findings = lint(Some(BOXES), &LintRules::default());
        let rules: Vec<_> = findings.iter().map(|found| found.rule).collect();
        assert_eq!(rules[..2], [Rule::Frontmatter, Rule::RequiredKeys]);
        assert_eq!(rules[2..5], [Rule::RequiredKeys; 3]);
        assert_eq!(
            rules[5..],
            [Rule::SpendLimit, Rule::Verification, Rule::Verification]
        );
    }

    #[test]
    fn a_missing_file_is_the_only_finding() {
        let findings = lint(None, &LintRules::default());
        let found: Vec<_> = findings.iter().map(|found| (found.line, found.rule)).collect();
        assert_eq!(found, [(None, Rule::FileExists)]);
    }

    #[test]
    fn the_least_number_of_checkboxes_can_be_chosen() {
        let text = format!("{HEAD}{BOXES}");
        let rules_broken_at = |min_checkboxes| -> Vec<Rule> {
            let findings = lint(Some(&text), &LintRules { min_checkboxes });
            findings.iter().map(|found| found.rule).collect()
        };
        assert_eq!(rules_broken_at(2), []);
        assert_eq!(rules_broken_at(3), [Rule::EnoughCheckboxes]);
    }
}
