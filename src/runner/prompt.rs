//! The prompt of an iteration: ten sections in a fixed order, and one with reviews after the task while there are any, within a
//! size. The same input gives the same bytes.

use std::fmt::Write;

use minijinja::{Environment, UndefinedBehavior, context};
use thiserror::Error;

use crate::text::{counted, first_bytes, last_bytes};

use super::progress::LastIteration;

const TEMPLATE: &str = include_str!("../../templates/prompt/iteration.md.j2");
const NOTHING: &str = "(nothing yet)";
const ERROR_LINES: usize = 200;

/// Everything that goes into a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PromptInput {
    /// Where the clone is, inside the sandbox.
    pub(super) clone: String,
    /// The run's branch.
    pub(super) branch: String,
    /// The task with the runner's ticks.
    pub(super) task: String,
    /// `.ralph/reviews.md`; empty while no review has to be worked on.
    pub(super) reviews: String,
    /// `.ralph/guardrails.md`.
    pub(super) guardrails: String,
    /// `.ralph/progress.md`.
    pub(super) progress: String,
    /// `.ralph/notes.md`.
    pub(super) notes: String,
    /// `.ralph/errors.log`.
    pub(super) errors: String,
    /// The branch's tip.
    pub(super) tip: String,
    /// What the last iteration left.
    pub(super) last: LastIteration,
    /// The output of the last test run.
    pub(super) tests: String,
    /// Budgets left, iteration number and recent loop scores.
    pub(super) budgets: String,
    /// The instructions for the answer; empty for agent programs.
    pub(super) answer_format: String,
}

/// The prompt template cannot be rendered.
#[derive(Debug, Error)]
#[error("cannot render the prompt template")]
pub struct PromptError(#[from] minijinja::Error);

/// Renders the prompt in about `max_bytes`. Long sections are cut and point to the file with the whole text.
pub(super) fn render(state: &PromptInput, max_bytes: usize) -> Result<String, PromptError> {
    let share = |percent: usize| max_bytes * percent / 100;
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.set_keep_trailing_newline(true);
    let text = templates.render_str(
        TEMPLATE,
        context! {
            clone => state.clone,
            branch => state.branch,
            tip => state.tip,
            task => head(&state.task, share(32), "ralph_task.md"),
            reviews => reviews(&state.reviews, share(8)),
            guardrails => tail(&state.guardrails, share(8), ".ralph/guardrails.md"),
            progress => tail(&state.progress, share(8), ".ralph/progress.md"),
            notes => tail(&state.notes, share(8), ".ralph/notes.md"),
            errors => tail(&last_lines(&state.errors, ERROR_LINES), share(12), ".ralph/errors.log"),
            git => git(state, share(12)),
            tests => tests(state, share(12)),
            budgets => state.budgets,
            answer_format => state.answer_format,
        },
    )?;
    Ok(text)
}

/// What reviewers ask for; empty without any.
fn reviews(text: &str, limit: usize) -> String {
    match text {
        "" => String::new(),
        text => head(text, limit, ".ralph/reviews.md"),
    }
}

fn git(state: &PromptInput, limit: usize) -> String {
    let status = match state.last.status.as_str() {
        "" => "(clean)",
        status => status,
    };
    let pointer = state.last.diff_file.as_deref().unwrap_or("git diff");
    let mut text = format!(
        "Uncommitted changes:\n{}\n",
        head(status, limit / 2, "git status")
    );
    if !state.last.diff_summary.is_empty() {
        let summary = head(&state.last.diff_summary, limit / 2, pointer);
        let _ = writeln!(
            text,
            "\nChanged by the last iteration (full diff in `{pointer}`):\n{summary}"
        );
    }
    text
}

fn tests(state: &PromptInput, limit: usize) -> String {
    let pointer = state.last.tests_file.as_deref().unwrap_or("test_output.txt");
    tail(&state.tests, limit, pointer)
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The beginning of a text; `whole` is the file with all of it.
fn head(text: &str, limit: usize, whole: &str) -> String {
    let text = text.trim_end();
    let kept = first_bytes(text, limit);
    match text.len() - kept.len() {
        _ if text.is_empty() => NOTHING.to_owned(),
        0 => text.to_owned(),
        cut => format!(
            "{kept}\n[... {} cut; all of it is in `{whole}` ...]",
            counted(cut, "byte")
        ),
    }
}

/// The end of a text; `whole` is the file with all of it.
fn tail(text: &str, limit: usize, whole: &str) -> String {
    let text = text.trim_end();
    let kept = last_bytes(text, limit);
    match text.len() - kept.len() {
        _ if text.is_empty() => NOTHING.to_owned(),
        0 => text.to_owned(),
        cut => format!(
            "[... {} cut; all of it is in `{whole}` ...]\n{kept}",
            counted(cut, "byte")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> PromptInput {
        PromptInput {
            clone: "/sandbox/work".into(),
            branch: "ralph/t/x".into(),
            task: "do it".into(),
            tip: "abc".into(),
            budgets: "Iteration 1 of 3".into(),
            answer_format: "JSON".into(),
            ..PromptInput::default()
        }
    }

    #[test]
    fn the_ten_parts_come_in_order() {
        let text = render(&state(), 100_000).unwrap();
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("# ")).collect();
        let numbers: Vec<&str> = headings
            .iter()
            .map(|line| line[2..].split('.').next().unwrap())
            .collect();
        assert_eq!(numbers, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    }

    #[test]
    fn reviews_follow_the_task() {
        let reviews = "Reviewers ask for this:\n> # 3. Guardrails\n".to_owned();
        let with = render(&PromptInput { reviews, ..state() }, 100_000).unwrap();
        let section = "# Reviews (.ralph/reviews.md)\n\nReviewers ask for this:\n> # 3. Guardrails\n\n";
        assert!(
            with.contains(&format!("do it\n\n{section}# 3. Guardrails")),
            "{with}"
        );
        assert_eq!(with.replace(section, ""), render(&state(), 100_000).unwrap());
    }

    #[test]
    fn the_same_state_gives_the_same_bytes() {
        assert_eq!(
            render(&state(), 50_000).unwrap(),
            render(&state(), 50_000).unwrap()
        );
    }

    #[test]
    fn template_syntax_in_a_part_is_only_text() {
        let text = render(
            &PromptInput {
                notes: "{{ secret }} {% raw".into(),
                ..state()
            },
            50_000,
        )
        .unwrap();
        assert!(text.contains("{{ secret }} {% raw"));
    }

    #[test]
    fn long_parts_are_cut_with_a_pointer() {
        let long = "ö".repeat(100_000);
        let state = PromptInput {
            task: long.clone(),
            guardrails: long.clone(),
            progress: long.clone(),
            notes: long.clone(),
            errors: long.clone(),
            last: LastIteration {
                status: long.clone(),
                diff_summary: long.clone(),
                tests_file: Some(".ralph/iterations/3/test_output.txt".into()),
                ..LastIteration::default()
            },
            tests: long,
            ..state()
        };
        let text = render(&state, 20_000).unwrap();
        assert!(text.len() < 24_000, "{}", text.len());
        for pointer in [
            "`ralph_task.md`",
            "`.ralph/notes.md`",
            "`.ralph/iterations/3/test_output.txt`",
        ] {
            assert!(
                text.contains(&format!("all of it is in {pointer}")),
                "no pointer to {pointer}"
            );
        }
    }

    #[test]
    fn the_rules_ask_for_small_diffs_and_for_tests() {
        let text = render(&state(), 100_000).unwrap();
        assert!(
            text.contains("\n- Keep the diff minimal and reviewable"),
            "{text}"
        );
        assert!(
            text.contains("\n- Run the tests before you claim anything.\n"),
            "{text}"
        );
    }

    #[test]
    fn only_the_last_errors_are_shown() {
        let errors = (0..500)
            .map(|n| format!("error {n}"))
            .collect::<Vec<_>>()
            .join("\n");
        let text = render(&PromptInput { errors, ..state() }, 100_000).unwrap();
        assert!(
            text.contains("error 300\n") && !text.contains("error 299\n") && text.contains("error 499\n")
        );
    }
}
