//! Fuzz bodies of task files, of issues that become tasks, and of text that a forge shows.

use std::collections::BTreeSet;

use super::document;
use super::inert_markdown::{cell, fence, open_blocks, prose};
use super::yaml::parse_mapping;
use super::{
    CheckboxId, SpecChecks, SpecIssue, SpecStepState, Task, body, lint, mark_steps_done, render_ticks,
    ticked_ids,
};
use crate::text::{code_span, visible};

/// The longest reason or fix of a mistake, in characters: a cut text, and the note that it is cut.
const LONGEST_MESSAGE: usize = 450;

/// A task file, also one that an agent has damaged.
pub(crate) fn task_file(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let lines = text.split('\n').count();
    let findings = lint(Some(text), 2);
    for finding in &findings {
        assert!(
            finding.line.is_none_or(|line| (1..=lines).contains(&line)),
            "{finding:?}"
        );
        let longest = finding.reason.chars().count().max(finding.fix.chars().count());
        assert!(longest <= LONGEST_MESSAGE, "{finding:?}");
    }
    if let Ok(task) = Task::parse(text) {
        let ids: BTreeSet<&CheckboxId> = task.checkboxes.iter().map(|checkbox| &checkbox.id).collect();
        assert_eq!(ids.len(), task.checkboxes.len());
        assert!(!task.title().contains('\n'));
        let _ = task.frontmatter.overrides();
    }
    assert!(text.ends_with(body(text)));
    keeps_everything_but_ticks(text);
}

/// Exactly the named checkboxes are ticked, and nothing else changes.
fn keeps_everything_but_ticks(text: &str) {
    let all = document::criteria(text).checkboxes;
    let every_other: BTreeSet<CheckboxId> = all.into_iter().map(|found| found.id).step_by(2).collect();
    let rendered = render_ticks(text, &every_other);
    assert_eq!(ticked_ids(&rendered), every_other);
    assert_eq!(render_ticks(&rendered, &every_other), rendered);
    let none = BTreeSet::new();
    assert_eq!(render_ticks(&rendered, &none), render_ticks(text, &none));
    let changed = text.bytes().zip(rendered.bytes()).filter(|(old, new)| old != new);
    assert!(rendered.len() == text.len() && changed.count() <= text.matches('[').count());
}

/// YAML without the rest of a task file.
pub(crate) fn yaml_mapping(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    match parse_mapping(text) {
        Ok(entries) => {
            let written: usize = entries.iter().map(|entry| entry.key.len()).sum();
            // An escape of two bytes can stand for three.
            assert!(written <= 2 * text.len());
        }
        Err(error) => assert!(error.reason.chars().count() <= LONGEST_MESSAGE),
    }
}

/// An issue: its title, a NUL and its text. Its task has a checkbox for each open step, and no command of its own.
pub(crate) fn spec_issue(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let (title, issue) = text
        .split_once('\0')
        .unwrap_or(("[fix-login] Fix the login", text));
    let Ok(spec) = SpecIssue::parse(title, issue) else {
        return;
    };
    let checks = SpecChecks {
        repo_url: None,
        setup_command: None,
        test_command: Some("make test".to_owned()),
        verify_commands: vec!["make check".to_owned()],
        max_iterations: 5,
        max_wall_time_minutes: 60,
        max_cost_usd_estimate: 1.5,
        max_tokens_total: None,
    };
    let written = spec.task(7, &checks);
    let task = Task::parse(&written).unwrap_or_else(|error| panic!("{error:?}\n{written}"));
    let open = spec.steps.iter().filter(|step| step.state == SpecStepState::Open);
    assert_eq!(task.checkboxes.len(), open.count(), "{written}");
    for checkbox in &task.checkboxes {
        assert!(checkbox.verify.is_empty() && !checkbox.checked, "{written}");
    }
    assert_eq!(task.frontmatter.test_command, "make test");

    // Each open step can be marked as done by the text of its checkbox.
    let titles: Vec<&str> = task
        .checkboxes
        .iter()
        .map(|checkbox| checkbox.text.as_str())
        .collect();
    let marked = mark_steps_done(issue, &titles);
    assert_eq!(
        marked.len(),
        issue.len() + titles.len() * " [done]".len(),
        "{written}"
    );
    assert_eq!(mark_steps_done(&marked, &titles), marked);
}

/// Text of others in a pull request.
pub(crate) fn markdown_text(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let shown = prose(text);
    has_no_effect(&shown);
    assert!(!cell(&shown).replace("\\|", "").contains('|'));

    let span = code_span(text);
    let ticks = span.len() - span.trim_start_matches('`').len();
    assert!(!span.contains('\n') && span.ends_with(&"`".repeat(ticks)));
    assert!(
        !span[ticks..span.len() - ticks]
            .split(|c| c != '`')
            .any(|run| run.len() == ticks)
    );

    assert_eq!(open_blocks(&fence(text)), (None, 0));
    let hidden = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!visible(text).contains(hidden));
}

/// One line whose text outside of code spans has no character that Markdown, HTML or a forge acts on.
fn has_no_effect(shown: &str) {
    assert!(!shown.contains(['\n', '\r']));
    let mut rest = shown;
    while let Some(c) = rest.chars().next() {
        rest = match c {
            '\\' => {
                let escaped = rest[1..].chars().next();
                &rest[1 + escaped.map_or(0, char::len_utf8)..]
            }
            '`' => {
                let ticks = rest.len() - rest.trim_start_matches('`').len();
                let (fence, after) = rest.split_at(ticks);
                let end = after.split(fence).next().map_or(0, str::len);
                assert!(
                    after[end..].starts_with(fence),
                    "a code span without an end: {shown:?}"
                );
                &after[end + ticks..]
            }
            '@' | '#' => {
                let after = rest[1..].strip_prefix("&#8203;");
                after.unwrap_or_else(|| panic!("{c} has an effect: {shown:?}"))
            }
            '&' => {
                let end = rest
                    .find(';')
                    .unwrap_or_else(|| panic!("a bare ampersand: {shown:?}"));
                &rest[end + 1..]
            }
            '<' | '>' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => panic!("{c} has an effect: {shown:?}"),
            other => &rest[other.len_utf8()..],
        };
        assert!(!rest.starts_with("://"), "an address is a link: {shown:?}");
    }
}
