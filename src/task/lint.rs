//! Reports every mistake in a task file before a run costs anything.

use crate::text::counted;

use super::checkbox::Criteria;
use super::document::TaskDocument;
use super::error::{LintRule, LintSeverity, TaskError, example};
use super::starter::PLACEHOLDERS;

/// Reports every mistake in a task file, by line. `None` means that the file does not exist.
#[must_use]
pub fn lint(text: Option<&str>, min_checkboxes: usize) -> Vec<TaskError> {
    let Some(text) = text else {
        return vec![TaskError {
            line: None,
            rule: LintRule::FileExists,
            severity: LintSeverity::Error,
            reason: "the task file does not exist".to_owned(),
            fix: "write `ralph_task.md`, or create an example with `ralph init`".to_owned(),
        }];
    };
    let mut document = TaskDocument::parse(text);
    let mut findings = std::mem::take(&mut document.errors);
    findings.append(&mut document.criteria.warnings);
    findings.extend(nul_characters(text));
    findings.extend(placeholders(text));
    findings.extend(missing_budgets(&document));
    findings.extend(too_few_checkboxes(&document, min_checkboxes));
    findings.extend(unverified_checkboxes(&document));
    findings.sort_by_key(|finding| finding.line);
    findings
}

/// No command line can contain a NUL, and no editor shows one.
fn nul_characters(text: &str) -> Option<TaskError> {
    let line = text.lines().position(|line| line.contains('\0'))? + 1;
    Some(TaskError::new(
        line,
        LintRule::Values,
        "this line contains a NUL character",
        "remove it; the file may have been saved in another encoding than UTF-8",
    ))
}

/// What is left of the example of `ralph init`: a run would work on that.
fn placeholders(text: &str) -> Vec<TaskError> {
    let numbered = text.lines().zip(1..);
    let found = numbered.filter_map(|(line, number)| {
        let (_, fix) = PLACEHOLDERS
            .iter()
            .find(|(example, _)| line.trim_end() == *example)?;
        let reason = "this line is left from the example that `ralph init` writes";
        Some(TaskError::new(number, LintRule::Placeholders, reason, *fix))
    });
    found.collect()
}

/// The configuration has defaults for these, but a task that costs money has to set its own limits.
fn missing_budgets(document: &TaskDocument) -> Vec<TaskError> {
    let Some(keys) = &document.keys else {
        return Vec::new();
    };
    let mut findings: Vec<TaskError> = ["max_iterations", "max_wall_time_minutes"]
        .into_iter()
        .filter(|key| !keys.contains(*key))
        .map(TaskError::missing_key)
        .collect();
    if !keys.contains("max_cost_usd_estimate") && !keys.contains("max_tokens_total") {
        let (cost, tokens) = (example("max_cost_usd_estimate"), example("max_tokens_total"));
        findings.push(TaskError::new(
            1,
            LintRule::SpendLimit,
            "neither `max_cost_usd_estimate` nor `max_tokens_total` is set",
            format!("add {cost} or {tokens}"),
        ));
    }
    findings
}

fn too_few_checkboxes(document: &TaskDocument, min_checkboxes: usize) -> Option<TaskError> {
    let checkboxes = &document.criteria.checkboxes;
    (checkboxes.len() < min_checkboxes).then(|| {
        TaskError::new(
            checkboxes.last().map_or(1, |last| last.line),
            LintRule::EnoughCheckboxes,
            format!(
                "the task has {}, and needs at least {min_checkboxes}",
                counted(checkboxes.len(), "checkbox")
            ),
            "add success criteria like `- [ ] M1.1 The login survives a restart`",
        )
    })
}

/// Skips checkboxes whose `verify:` is invalid, and all if `verify_commands` is: those are findings already.
fn unverified_checkboxes(document: &TaskDocument) -> Vec<TaskError> {
    if document
        .keys
        .as_ref()
        .is_none_or(|keys| keys.contains("verify_commands"))
    {
        return Vec::new();
    }
    let fix = format!(
        "add - verify: `cargo test` under it, or {} to the frontmatter",
        example("verify_commands")
    );
    let Criteria {
        checkboxes,
        empty_verify,
        ..
    } = &document.criteria;
    checkboxes
        .iter()
        .filter(|checkbox| checkbox.verify.is_empty() && !empty_verify.contains(&checkbox.id))
        .map(|checkbox| {
            let reason = format!("nothing verifies {}", checkbox.id);
            TaskError::new(checkbox.line, LintRule::Verification, reason, &fix)
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

    type Expected = (usize, LintRule, &'static str);

    #[track_caller]
    fn check(text: &str, expected: &[Expected]) {
        let findings = lint(Some(text), 2);
        let found: Vec<_> = findings
            .iter()
            .map(|found| (found.line.unwrap(), found.rule, found.reason.as_str()))
            .collect();
        assert_eq!(found, expected);
        let has_fix = |found: &TaskError| !found.fix.is_empty() && !found.fix.contains("...");
        assert!(findings.iter().all(has_fix), "{findings:#?}");
    }

    #[test]
    fn a_good_task_has_no_findings() {
        check(&format!("{HEAD}{BOXES}"), &[]);
    }

    #[rstest]
    #[case("task_id: t\n", (1, LintRule::RequiredKeys, "`task_id` is missing"))]
    #[case("test_command: make test\n", (1, LintRule::RequiredKeys, "`test_command` is missing"))]
    #[case("max_iterations: 5\n", (1, LintRule::RequiredKeys, "`max_iterations` is missing"))]
    #[case("max_wall_time_minutes: 9\n", (1, LintRule::RequiredKeys, "`max_wall_time_minutes` is missing"))]
    #[case(
        "max_tokens_total: 1000\n",
        (1, LintRule::SpendLimit, "neither `max_cost_usd_estimate` nor `max_tokens_total` is set")
    )]
    fn a_setting_left_out_or_left_empty_is_missed(#[case] line: &str, #[case] expected: Expected) {
        check(&format!("{}{BOXES}", HEAD.replace(line, "")), &[expected]);
        let emptied = format!("{}:\n", line.split(':').next().unwrap());
        check(&format!("{}{BOXES}", HEAD.replace(line, &emptied)), &[expected]);
    }

    #[rstest]
    #[case::zero(
        ("max_iterations: 5", "max_iterations: 0"),
        (4, LintRule::Values, "`max_iterations` is `0`; expected a whole number above 0")
    )]
    #[case::endless(
        ("max_wall_time_minutes: 9", "max_wall_time_minutes: .inf"),
        (5, LintRule::Values, "`max_wall_time_minutes` is `.inf`; expected a whole number above 0")
    )]
    #[case::negative(
        ("max_tokens_total: 1000", "max_tokens_total: -1"),
        (6, LintRule::Values, "`max_tokens_total` is `-1`; expected a whole number above 0")
    )]
    #[case::unsafe_name(
        ("task_id: t", "base_branch: a..b\ntask_id: t"),
        (2, LintRule::Values, "`base_branch` is `a..b`; expected a branch name that git accepts")
    )]
    #[case::no_list(
        ("[make check]", "make"),
        (7, LintRule::Values, "`verify_commands` is `make`; expected a list of shell commands, none of them blank")
    )]
    #[case::misspelt(
        ("max_iterations: 5", "max_iterations: 5\nmax_iteration: 5"),
        (5, LintRule::KnownKeys, "unknown key `max_iteration`; did you mean `max_iterations`?")
    )]
    #[case::template(
        ("task_id: t", "task_id: t\npr: { title_template: \"{{ tittle }}\" }"),
        (3, LintRule::Templates, "`pr.title_template` cannot be rendered: undefined value (in pr.title_template:1)")
    )]
    #[case::unclosed(
        ("check]\n---\n", "check]\n"),
        (1, LintRule::Frontmatter, "the frontmatter is never closed")
    )]
    fn a_mistake_is_found_once(#[case] (from, to): (&str, &str), #[case] expected: Expected) {
        check(&format!("{}{BOXES}", HEAD.replace(from, to)), &[expected]);
    }

    #[test]
    fn a_nul_is_found_in_the_text_and_in_commands() {
        let body = format!("{HEAD}{}", BOXES.replace("M1.2 b", "M1.2 \0b"));
        check(
            &body,
            &[(10, LintRule::Values, "this line contains a NUL character")],
        );
        let escaped = HEAD.replace("test_command: make test", "test_command: \"make\\0 test\"");
        let findings = lint(Some(&format!("{escaped}{BOXES}")), 2);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].line, findings[0].rule), (Some(3), LintRule::Values));
    }

    #[test]
    fn a_huge_value_is_cut() {
        let long = HEAD.replace(
            "max_iterations: 5",
            &format!("max_iterations: {}", "x".repeat(100_000)),
        );
        let findings = lint(Some(&format!("{long}{BOXES}")), 2);
        assert_eq!(findings.len(), 1, "{findings:?}");
        let reason = &findings[0].reason;
        assert!(
            reason.len() < 500 && reason.ends_with("expected a whole number above 0"),
            "{reason}"
        );
    }

    #[test]
    fn a_tab_may_follow_a_key() {
        let tabs = HEAD
            .replace("task_id: t", "task_id:\tt")
            .replace("max_iterations: ", "max_iterations:\t");
        check(&format!("{tabs}{BOXES}"), &[]);
    }

    #[rstest]
    #[case::none("text", &[(1, LintRule::EnoughCheckboxes, "the task has 0 checkboxes, and needs at least 2")])]
    #[case::one("\n- [ ] M1 a", &[(10, LintRule::EnoughCheckboxes, "the task has 1 checkbox, and needs at least 2")])]
    #[case::same_id(
        "- [ ] M1 a\n- [ ] M1 b",
        &[(10, LintRule::UniqueIds, "duplicate id `M1` (first used on line 9)")]
    )]
    #[case::empty_verify(
        "- [ ] M1 a\n  - verify: ``\n- [ ] M2 b",
        &[(10, LintRule::Verification, "this `verify:` of M1 contains no command in backticks")]
    )]
    #[case::unclosed(
        "- [ ] M1 a\n- [ ] M2 b\n```",
        &[(11, LintRule::Closed, "this code block is never closed, so the checkboxes after it are ignored")]
    )]
    fn the_checkboxes_are_looked_at(#[case] body: &str, #[case] expected: &[Expected]) {
        check(&format!("{HEAD}{body}"), expected);
    }

    #[rstest]
    #[case::absent("# none")]
    #[case::empty("verify_commands: []")]
    fn each_checkbox_without_verification_is_reported(#[case] global: &str) {
        let head = HEAD.replace("verify_commands: [make check]", global);
        check(
            &format!(
                "{head}- [ ] M1 a\n- [ ] M2 b\n  - verify: `ls`\n- [ ] M3 c\n- [ ] M4 d\n  - verify: ``"
            ),
            &[
                (9, LintRule::Verification, "nothing verifies M1"),
                (12, LintRule::Verification, "nothing verifies M3"),
                (
                    14,
                    LintRule::Verification,
                    "this `verify:` of M4 contains no command in backticks",
                ),
            ],
        );
    }

    #[test]
    fn all_mistakes_are_reported_by_line() {
        check(
            "---\nbase_branch: a b\ncolour: red\nmax_iterations: x\n---\n- [ ] M1 a\n- [ ] M1 b\n",
            &[
                (1, LintRule::RequiredKeys, "`task_id` is missing"),
                (1, LintRule::RequiredKeys, "`test_command` is missing"),
                (1, LintRule::RequiredKeys, "`max_wall_time_minutes` is missing"),
                (
                    1,
                    LintRule::SpendLimit,
                    "neither `max_cost_usd_estimate` nor `max_tokens_total` is set",
                ),
                (
                    2,
                    LintRule::Values,
                    "`base_branch` is `a b`; expected a branch name that git accepts",
                ),
                (3, LintRule::KnownKeys, "unknown key `colour`"),
                (
                    4,
                    LintRule::Values,
                    "`max_iterations` is `x`; expected a whole number above 0",
                ),
                (6, LintRule::Verification, "nothing verifies M1"),
                (7, LintRule::UniqueIds, "duplicate id `M1` (first used on line 6)"),
                (7, LintRule::Verification, "nothing verifies M1"),
            ],
        );
    }

    #[test]
    fn broken_frontmatter_does_not_hide_the_checkboxes() {
        let text = "---\ntask_id: [\ntest_command: x\n---\n- [ ] M1 a\n- [ ] M1 b\n  - verify: x\n";
        let findings = lint(Some(text), 2);
        let found: Vec<_> = findings.iter().map(|found| (found.line, found.rule)).collect();
        let expected = [
            (3, LintRule::Frontmatter),
            (6, LintRule::UniqueIds),
            (7, LintRule::Verification),
        ];
        assert_eq!(
            found,
            expected.map(|(line, rule)| (Some(line), rule)),
            "{findings:#?}"
        );
    }

    #[test]
    fn a_file_without_frontmatter_gets_all_findings() {
        let findings = lint(Some(BOXES), 2);
        let rules: Vec<_> = findings.iter().map(|found| found.rule).collect();
        assert_eq!(rules[..2], [LintRule::Frontmatter, LintRule::RequiredKeys]);
        assert_eq!(rules[2..5], [LintRule::RequiredKeys; 3]);
        assert_eq!(
            rules[5..],
            [
                LintRule::SpendLimit,
                LintRule::Verification,
                LintRule::Verification
            ]
        );
    }

    #[test]
    fn a_missing_file_is_the_only_finding() {
        let findings = lint(None, 2);
        let found: Vec<_> = findings.iter().map(|found| (found.line, found.rule)).collect();
        assert_eq!(found, [(None, LintRule::FileExists)]);
    }

    #[test]
    fn the_least_number_of_checkboxes_can_be_chosen() {
        let text = format!("{HEAD}{BOXES}");
        let rules_broken_at = |min_checkboxes| -> Vec<LintRule> {
            let findings = lint(Some(&text), min_checkboxes);
            findings.iter().map(|found| found.rule).collect()
        };
        assert_eq!(rules_broken_at(2), []);
        assert_eq!(rules_broken_at(3), [LintRule::EnoughCheckboxes]);
    }
}
