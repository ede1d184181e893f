//! Parses the answer of a model, strictly.

use thiserror::Error;

use crate::text::counted;

use super::check::{AnswerProblems, problems};
use super::json::{JsonNode, char_start, position};
use super::schema::{ActionsAnswer, AgentAction, schema};

/// Why an answer cannot be used, as a message for the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct AnswerError(String);

const SHOWN: usize = 40;

/// Parses an answer: one JSON object that follows the schema, with nothing around it.
///
/// In the result every path stays in the clone, every diff is well-formed and names its file, and only the last action
/// ends the iteration.
pub fn parse_answer(text: &str) -> Result<ActionsAnswer, AnswerError> {
    parse_root(text, &read_json(text)?)
}

/// Checks an answer of a script, whose author wrote YAML: its problems have no positions in the JSON.
pub(crate) fn check_scripted_answer(text: &str) -> Result<(), AnswerError> {
    parse_root(text, &read_json(text)?.without_positions()).map(drop)
}

fn parse_root(text: &str, root: &JsonNode<'_>) -> Result<ActionsAnswer, AnswerError> {
    expect_none(&problems(schema(), root))?;
    let answer: ActionsAnswer = root.read().map_err(|error| malformed(text, &error))?;
    expect_none(&check_actions(&answer.actions, root))?;
    Ok(answer)
}

/// The error for an answer that reached the output limit.
pub(super) fn cut_off(text: &str) -> AnswerError {
    AnswerError(format!(
        "the answer was cut off at the output limit after {}: \
         answer shorter, with fewer or smaller actions",
        counted(text.chars().count(), "character")
    ))
}

fn expect_none(problems: &AnswerProblems) -> Result<(), AnswerError> {
    if problems.described.is_empty() {
        return Ok(());
    }
    let mut message = "the answer does not follow the schema:".to_owned();
    for problem in &problems.described {
        message = format!("{message}\n- {problem}");
    }
    if problems.more > 0 {
        message = format!("{message}\n- and {} more", problems.more);
    }
    Err(AnswerError(message))
}

fn read_json(text: &str) -> Result<JsonNode<'_>, AnswerError> {
    let empty = || AnswerError("the answer is empty".to_owned());
    let beginning = |text: &str| text.chars().take(SHOWN).collect::<String>();
    let start = text.trim_start();
    if start.is_empty() {
        return Err(empty());
    }
    if !start.starts_with('{') {
        return Err(AnswerError(format!(
            "the answer begins with {:?}: its first character must be the `{{` of the JSON object",
            beginning(start)
        )));
    }
    let (root, end) = JsonNode::parse(text)
        .map_err(|error| malformed(text, &error))?
        .ok_or_else(empty)?;
    let after = text[end..].trim_start();
    if after.is_empty() {
        return Ok(root);
    }
    Err(AnswerError(format!(
        "there is text after the JSON object, from {} on: {:?}; nothing may follow its last `}}`",
        position(text, text.len() - after.len()),
        beginning(after)
    )))
}

/// Turns an error of the JSON parser into one with a position and the text around it.
fn malformed(text: &str, error: &serde_json::Error) -> AnswerError {
    let line_start: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let byte = char_start(text, line_start + error.column().saturating_sub(1));
    let position = position(text, byte);
    let near_start = char_start(text, byte.saturating_sub(SHOWN));
    if error.is_eof() {
        return AnswerError(format!(
            "the JSON ends before it is complete, at {position}, after {:?}: \
             a closing quote, bracket or brace is missing",
            &text[near_start..]
        ));
    }
    let near = &text[near_start..char_start(text, byte + SHOWN)];
    let place = format!(" at line {} column {}", error.line(), error.column());
    let reason = error.to_string();
    let reason = reason.trim_end_matches(&place);
    AnswerError(format!(
        "the JSON is malformed at {position}, near {near:?}: {reason}"
    ))
}

/// Checks what the schema cannot express: only the last action ends the iteration, and a diff names the file of its
/// action.
fn check_actions(actions: &[AgentAction], root: &JsonNode<'_>) -> AnswerProblems {
    let fields = root.fields().into_iter();
    let nodes = fields.filter(|(name, _)| name == "actions");
    let mut ended_by = None;
    let mut found = AnswerProblems::default();
    for (action, node) in actions.iter().zip(nodes.flat_map(|(_, node)| node.items())) {
        if let Some(ending) = ended_by {
            found.add(
                &node,
                format_args!("comes after `{ending}`, which ends the iteration and must be the last action"),
            );
        }
        ended_by = ended_by.or(action.conclusion().map(|_| action.name()));
        if let AgentAction::Patch { path, patch } = action
            && let Err(error) = patch.check_names(path)
        {
            found.add(&node, error);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn with_actions(actions: &str) -> String {
        format!(r#"{{"summary": "s", "actions": [{actions}]}}"#)
    }

    fn error_of(text: &str) -> String {
        parse_answer(text).unwrap_err().to_string()
    }

    /// The only problem of an answer with these actions.
    fn problem_of(actions: &str) -> String {
        let error = error_of(&with_actions(actions));
        let problem = error.strip_prefix("the answer does not follow the schema:\n- ");
        match problem {
            Some(problem) if !problem.contains("\n- ") => problem.to_owned(),
            _ => panic!("not one problem: {error}"),
        }
    }

    #[test]
    fn a_complete_answer_is_parsed() {
        let text = r#"
            {"summary": "s",
             "actions": [{"type": "run", "command": "make", "cwd": null, "timeout_s": 3600},
                         {"type": "rotate", "reason": "r"}],
             "claims": {"checkboxes_checked": ["M1.1"]}}
        "#;
        let answer = parse_answer(text).unwrap();
        assert_eq!(answer.actions.len(), 2);
        assert_eq!(answer.progress.checkboxes_checked, ["M1.1"]);
    }

    #[rstest]
    #[case("", "the answer is empty")]
    #[case(" \n", "the answer is empty")]
    #[case(
        "Sure! {}",
        "the answer begins with \"Sure! {}\": its first character must be the `{`"
    )]
    #[case("```json\n{}\n```", "the answer begins with \"```json\\n{}\\n```\"")]
    #[case("[]", "the answer begins with \"[]\"")]
    #[case("\u{feff}{}", "the answer begins with")]
    #[case(
        "{}\n```",
        "there is text after the JSON object, from line 2, column 1 on: \"```\""
    )]
    #[case(
        "{} {}",
        "there is text after the JSON object, from line 1, column 4 on: \"{}\""
    )]
    #[case("{\"summary\": \"a", "the JSON ends before it is complete, at line 1, column")]
    #[case(
        "{\"summary\": \"a\",\n\"actions\": [",
        "the JSON ends before it is complete, at line 2, column"
    )]
    #[case("{\"ä\":\n \"ö\", x}", "the JSON is malformed at line 2, column 7, near")]
    #[case("{\"summary\": \"a\nb\"}", "control character")]
    #[case("{'summary': 1}", "the JSON is malformed at line 1, column 2")]
    fn text_that_is_not_one_json_object_is_refused(#[case] text: &str, #[case] expected: &str) {
        let error = error_of(text);
        assert!(error.contains(expected), "{error}");
    }

    #[rstest]
    #[case("{}", "the answer (line 1, column 1): the field `summary` is missing")]
    #[case(
        r#"{"actions": 1}"#,
        "actions (line 1, column 13): expected array, found number"
    )]
    #[case(r#"{"summary": " "}"#, "summary (line 1, column 13): must not be empty")]
    #[case(
        r#"{"summary": 7}"#,
        "summary (line 1, column 13): expected string, found number"
    )]
    #[case(r#"{"summary": "\ud800"}"#, "summary (line 1, column 13): is not valid text")]
    #[case(
        r#"{"summary": "a", "summary": "b"}"#,
        "summary (line 1, column 29): duplicate field"
    )]
    #[case(
        r#"{"plan": 1}"#,
        "plan (line 1, column 10): unknown field; allowed here: `summary`, `actions`, `claims`"
    )]
    #[case(
        r#"{"claims": {"done": []}}"#,
        "claims.done (line 1, column 21): unknown field; allowed here: `checkboxes_checked`, `milestones_completed`"
    )]
    #[case(
        r#"{"claims": {"checkboxes_checked": ["a", 1]}}"#,
        "claims.checkboxes_checked[1] (line 1, column 41): expected string"
    )]
    fn an_answer_of_another_shape_is_refused(#[case] text: &str, #[case] expected: &str) {
        let error = error_of(text);
        assert!(error.contains(expected), "{error}");
    }

    #[rstest]
    #[case("1", "actions[0] (line 1, column 30): expected object, found number")]
    #[case(
        r#"{"command": "x"}"#,
        "actions[0] (line 1, column 30): the field `type` is missing"
    )]
    #[case(
        r#"{"type": 1}"#,
        "actions[0].type (line 1, column 39): expected string, found number"
    )]
    #[case(
        r#"{"type": "exec"}"#,
        "actions[0].type (line 1, column 39): `exec` is not an action; expected one of `run`, `patch`, `write`, `commit`, `rotate`, `pause`, `stop_success`, `stop_failure`"
    )]
    #[case(
        r#"{"type": "run"}"#,
        "actions[0] (line 1, column 30): the field `command` is missing"
    )]
    #[case(
        r#"{"type": "run", "command": "x", "timeout": 3}"#,
        "actions[0].timeout (line 1, column 73): unknown field; allowed here: `type`, `command`, `cwd`, `timeout_s`"
    )]
    #[case(
        r#"{"type": "run", "command": ""}"#,
        "actions[0].command (line 1, column 57): must not be empty"
    )]
    #[case(
        r#"{"type": "run", "command": "a\u0000"}"#,
        "actions[0].command (line 1, column 57): has a NUL character"
    )]
    #[case(
        r#"{"type": "run", "command": "x", "timeout_s": 0}"#,
        "expected a whole number from 1 to 3600"
    )]
    #[case(
        r#"{"type": "run", "command": "x", "timeout_s": 3601}"#,
        "expected a whole number from 1 to 3600"
    )]
    #[case(
        r#"{"type": "run", "command": "x", "timeout_s": 1.5}"#,
        "expected a whole number from 1 to 3600"
    )]
    #[case(
        r#"{"type": "run", "command": "x", "timeout_s": "9"}"#,
        "expected integer or null, found string"
    )]
    #[case(
        r#"{"type": "run", "command": "x", "cwd": "/tmp"}"#,
        "actions[0].cwd (line 1, column 69): `/tmp` is absolute"
    )]
    #[case(
        r#"{"type": "write", "path": "../x", "content": ""}"#,
        "actions[0].path (line 1, column 56): `../x` has the component `..`, or one of only dots and spaces"
    )]
    #[case(
        r#"{"type": "write", "path": ".git/config", "content": ""}"#,
        "`.git/config` is in git's own directory"
    )]
    #[case(
        r#"{"type": "write", "path": "x", "content": "", "append": "yes"}"#,
        "expected boolean, found string"
    )]
    #[case(
        r#"{"type": "commit", "message": "m", "paths": ["a", ""]}"#,
        "actions[0].paths[1] (line 1, column 80): the path is empty"
    )]
    #[case(
        r#"{"type": "patch", "path": "x", "patch": "oops"}"#,
        "actions[0].patch (line 1, column 70): line 1 of the diff is \"oops\""
    )]
    #[case(
        r#"{"type": "patch", "path": "x", "patch": "--- a/y\n+++ b/y\n@@\n-a\n+b"}"#,
        "the diff names `a/y`, but the action's path is `x`"
    )]
    #[case(
        r#"{"type": "pause", "reason": "a"}, {"type": "run", "command": "x"}"#,
        "actions[1] (line 1, column 64): comes after `pause`, which ends the iteration"
    )]
    #[case(
        r#"{"type": "pause", "reason": "a"}, {"type": "rotate", "reason": "b"}"#,
        "actions[1] (line 1, column 64): comes after `pause`"
    )]
    fn an_action_of_another_shape_is_refused(#[case] actions: &str, #[case] expected: &str) {
        let problem = problem_of(actions);
        assert!(problem.contains(expected), "{problem}");
    }

    #[test]
    fn values_over_the_limits_are_refused() {
        let content = format!(
            r#"{{"type": "write", "path": "x", "content": "{}"}}"#,
            "ä".repeat(500_001)
        );
        assert!(problem_of(&content).contains("has 500001 characters; at most 500000 are allowed"));
        let actions = [r#"{"type": "run", "command": "x"}"#; 51].join(",");
        assert!(
            problem_of(&actions)
                .contains("actions (line 1, column 29): has 51 items; at most 50 are allowed")
        );
    }

    #[test]
    fn all_problems_are_reported_at_once_up_to_ten() {
        let error = error_of(&with_actions(r#"{"type": "run"}, {"type": "commit"}"#));
        assert!(
            error.contains("\n- actions[0]") && error.contains("\n- actions[1]"),
            "{error}"
        );
        let error = error_of(&with_actions(&["1"; 12].join(",")));
        assert!(error.ends_with("\n- and 2 more"), "{error}");
    }

    #[test]
    fn deep_nesting_is_refused() {
        assert!(parse_answer(&"{\"a\":".repeat(100_000)).is_err());
        assert!(
            parse_answer(&format!(
                "{{\"actions\": {}{}}}",
                "[".repeat(50_000),
                "]".repeat(50_000)
            ))
            .is_err()
        );
    }

    /// Answers with a random change.
    fn damaged_answer() -> impl Strategy<Value = String> {
        let whole = with_actions(
            r#"{"type": "patch", "path": "x", "patch": "@@\n-ä\n+b"}, {"type": "run", "command": "ö"}"#,
        );
        (0..whole.chars().count(), ".{0,3}", 0..9usize).prop_map(move |(at, insert, remove)| {
            let kept = whole.chars().skip(at + remove);
            whole.chars().take(at).chain(insert.chars()).chain(kept).collect()
        })
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in any::<String>()) {
            let _ = parse_answer(&text).map_err(|error| error.to_string());
        }

        #[test]
        fn no_damage_breaks_the_reader(text in damaged_answer()) {
            let _ = parse_answer(&text).map_err(|error| error.to_string());
        }
    }
}
