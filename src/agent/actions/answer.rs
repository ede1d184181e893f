//! Reading an answer, strictly.

use thiserror::Error;

use super::check::{Fault, Problem, problems};
use super::json::{Node, Position, char_start};
use super::schema::{Action, Answer, schema};

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// Nothing was said.
    #[error("the answer is empty")]
    Empty,
    /// The model reached its limit before it was done.
    #[error(
        "the answer was cut off at the output limit after {characters} characters: \
         answer shorter, with fewer or smaller actions"
    )]
    CutOff {
        /// How many came.
        characters: usize,
    },
    /// It begins with something else.
    #[error("the answer begins with {found:?}: its first character must be the `{{` of the JSON object")]
    TextBefore {
        /// What it begins with, shortened.
        found: String,
    },
    /// It goes on after the JSON.
    #[error(
        "there is text after the JSON object, from {position} on: {found:?}; nothing may follow its last `}}`"
    )]
    TextAfter {
        /// Where the text begins.
        position: Position,
        /// How it begins, shortened.
        found: String,
    },
    /// The JSON ends too early.
    #[error(
        "the JSON ends before it is complete, at {position}, after {near:?}: \
         a closing quote, bracket or brace is missing"
    )]
    Truncated {
        /// Where it ends.
        position: Position,
        /// What comes before.
        near: String,
    },
    /// It is no JSON.
    #[error("the JSON is malformed at {position}, near {near:?}: {reason}")]
    Malformed {
        /// Where.
        position: Position,
        /// What is around there.
        near: String,
        /// What is wrong.
        reason: String,
    },
    /// It is JSON, but not as the schema says.
    #[error("the answer does not follow the schema:\n- {}", bullets(.0))]
    Invalid(Vec<Problem>),
}

const SHOWN: usize = 40;
const PROBLEMS_SHOWN: usize = 10;

/// Reads an answer: one JSON object that follows the schema, and nothing around it.
///
/// In what is returned, every path stays in the clone, every diff can be read and is of the file it is for, and only
/// the last action ends the iteration.
pub fn parse_answer(text: &str) -> Result<Answer, AnswerError> {
    let root = read_json(text)?;
    expect_none(problems(schema(), &root))?;
    let answer: Answer = root.read().map_err(|error| malformed(text, &error))?;
    expect_none(misplaced(&answer.actions, &root))?;
    Ok(answer)
}

fn expect_none(problems: Vec<Problem>) -> Result<(), AnswerError> {
    if problems.is_empty() {
        return Ok(());
    }
    Err(AnswerError::Invalid(problems))
}

fn read_json(text: &str) -> Result<Node<'_>, AnswerError> {
    if text.trim().is_empty() {
        return Err(AnswerError::Empty);
    }
    if !text.trim_start().starts_with('{') {
        let found = beginning(text.trim_start());
        return Err(AnswerError::TextBefore { found });
    }
    let (root, end) = Node::parse(text)
        .map_err(|error| malformed(text, &error))?
        .ok_or(AnswerError::Empty)?;
    let after = text[end..].trim_start();
    if !after.is_empty() {
        return Err(AnswerError::TextAfter {
            position: Position::of_byte(text, text.len() - after.len()),
            found: beginning(after),
        });
    }
    Ok(root)
}

/// What is wrong with a text that the JSON parser refuses.
fn malformed(text: &str, error: &serde_json::Error) -> AnswerError {
    let line_start: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let byte = char_start(text, line_start + error.column().saturating_sub(1));
    let position = Position::of_byte(text, byte);
    let near_start = char_start(text, byte.saturating_sub(SHOWN));
    if error.is_eof() {
        let near = text[near_start..].to_owned();
        return AnswerError::Truncated { position, near };
    }
    let place = format!(" at line {} column {}", error.line(), error.column());
    AnswerError::Malformed {
        position,
        near: text[near_start..char_start(text, byte + SHOWN)].to_owned(),
        reason: error.to_string().trim_end_matches(&place).to_owned(),
    }
}

/// What the schema cannot say: an action that ends the iteration is the last, and a diff is of the file it is for.
fn misplaced(actions: &[Action], root: &Node<'_>) -> Vec<Problem> {
    let fields = root.fields();
    let nodes = fields
        .iter()
        .find(|(name, _)| name == "actions")
        .map(|(_, node)| node.items());
    let mut ended_by = None;
    let mut found = Vec::new();
    for (action, node) in actions.iter().zip(nodes.into_iter().flatten()) {
        if let Some(ending) = ended_by {
            found.push(Problem::at(&node, Fault::AfterEnding { ending }));
        }
        ended_by = ended_by.or(action.ending().map(|_| action.name()));
        if let Action::Patch { path, patch } = action
            && let Err(error) = patch.check_names(path)
        {
            found.push(Problem::at(&node, error));
        }
    }
    found
}

fn beginning(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

fn bullets(problems: &[Problem]) -> String {
    let mut lines: Vec<String> = problems
        .iter()
        .take(PROBLEMS_SHOWN)
        .map(Problem::to_string)
        .collect();
    if problems.len() > PROBLEMS_SHOWN {
        lines.push(format!("and {} more", problems.len() - PROBLEMS_SHOWN));
    }
    lines.join("\n- ")
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

    /// The one thing that is wrong with an answer that has these actions.
    fn problem_of(actions: &str) -> String {
        match parse_answer(&with_actions(actions)).unwrap_err() {
            AnswerError::Invalid(problems) if problems.len() == 1 => problems[0].to_string(),
            other => panic!("not one problem: {other}"),
        }
    }

    #[test]
    fn a_whole_answer_is_read() {
        let text = r#"
            {"summary": "s",
             "actions": [{"type": "run", "command": "make", "cwd": null, "timeout_s": 3600},
                         {"type": "rotate", "reason": "r"}],
             "claims": {"checkboxes_checked": ["M1.1"]}}
        "#;
        let answer = parse_answer(text).unwrap();
        assert_eq!(answer.actions.len(), 2);
        assert_eq!(answer.claims.checkboxes_checked, ["M1.1"]);
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
    fn what_is_not_one_json_object_is_refused(#[case] text: &str, #[case] expected: &str) {
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
    #[case(r#"{"summary": "\ud800"}"#, "summary (line 1, column 13): is no text")]
    #[case(
        r#"{"summary": "a", "summary": "b"}"#,
        "summary (line 1, column 29): the field comes a second time"
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
        "actions[0].type (line 1, column 39): `exec` is no type of action; expected one of `run`, `patch`, `write`, `commit`, `rotate`, `pause`, `stop_success`, `stop_failure`"
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
        "actions[0].path (line 1, column 56): `../x` has a component that leads upwards"
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
    fn what_is_too_much_is_refused() {
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
    fn nesting_without_end_is_refused() {
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

    /// Answers with something changed in them.
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
