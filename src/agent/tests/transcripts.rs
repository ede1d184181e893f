//! Reading recorded, damaged and random transcripts.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::agent::{
    AgentProgram, Gemini, ModelFailure, OpenCode, ReportedAction, ReportedUsage, TranscriptEnd,
    TranscriptSummary,
};
use crate::exec::CapturedOutput;
use crate::usage::Tokens;

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/agents/", $name, ".jsonl"))
    };
}

const CURSOR: &str = concat!(
    r#"{"type":"system","subtype":"init","session_id":"s","model":"auto"}"#,
    "\n",
    r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"s","usage":{"inputTokens":7,"outputTokens":2,"cacheReadTokens":3,"cacheWriteTokens":0}}"#,
    "\n"
);

/// The end of a session as a short name.
fn end_name(summary: &TranscriptSummary) -> String {
    match &summary.end {
        TranscriptEnd::Missing => "missing".to_owned(),
        TranscriptEnd::Finished => "finished".to_owned(),
        TranscriptEnd::Failed { .. } => "failed".to_owned(),
        TranscriptEnd::OverBudget { .. } => "over budget".to_owned(),
        TranscriptEnd::ModelFailed(ModelFailure::RateLimited { until: None, .. }) => {
            "rate limited".to_owned()
        }
        TranscriptEnd::ModelFailed(ModelFailure::RateLimited {
            until: Some(until), ..
        }) => {
            format!("rate limited until {}", until.as_second())
        }
        TranscriptEnd::ModelFailed(ModelFailure::Unavailable { .. }) => "unavailable".to_owned(),
        TranscriptEnd::ModelFailed(ModelFailure::Unauthorized { .. }) => "unauthorized".to_owned(),
        TranscriptEnd::ModelFailed(ModelFailure::NoSuchModel { .. }) => "no such model".to_owned(),
    }
}

#[rstest]
#[case::ok(recorded!("claude-ok"), "finished")]
#[case::a_bad_request(recorded!("claude-400"), "failed")]
#[case::a_wrong_key(recorded!("claude-401"), "unauthorized")]
#[case::no_key(recorded!("claude-no-key"), "unauthorized")]
#[case::a_spent_budget(recorded!("claude-402"), "over budget")]
#[case::its_own_budget(recorded!("claude-budget"), "over budget")]
#[case::no_such_model(recorded!("claude-404"), "no such model")]
#[case::a_rate_limit(recorded!("claude-429"), "rate limited")]
#[case::a_rate_limit_with_a_reset(recorded!("claude-429-reset"), "rate limited until 1800000000")]
#[case::overloaded(recorded!("claude-529"), "rate limited")]
#[case::out_of_order(recorded!("claude-500"), "unavailable")]
#[case::no_connection(recorded!("claude-no-connection"), "unavailable")]
fn the_end_of_claude_is_read(#[case] printed: &str, #[case] expected: &str) {
    assert_eq!(end_name(&claude().parse_transcript(printed)), expected);
}

#[rstest]
#[case::ok(recorded!("codex-ok"), "finished")]
#[case::a_wrong_key(recorded!("codex-401"), "unauthorized")]
#[case::a_spent_budget(recorded!("codex-402"), "over budget")]
#[case::no_such_model(recorded!("codex-404"), "no such model")]
#[case::a_rate_limit(recorded!("codex-429"), "rate limited")]
#[case::a_rate_limit_with_a_reset(recorded!("codex-429-reset"), "rate limited until 1800000000")]
#[case::out_of_order(recorded!("codex-500"), "unavailable")]
fn the_end_of_codex_is_read(#[case] printed: &str, #[case] expected: &str) {
    assert_eq!(end_name(&codex().parse_transcript(printed)), expected);
}

#[test]
fn without_its_session_file_a_failure_of_codex_has_no_kind() {
    let (transcript, _) = recorded!("codex-429").split_once("{\"timestamp\"").unwrap();
    assert_eq!(end_name(&codex().parse_transcript(transcript)), "failed");
}

#[rstest]
#[case::claude(Box::new(claude()), recorded!("claude-ok"), reported("Done: hi from the fake model. ", 642, 84, Some(0.004_248)))]
#[case::claude_stopped(Box::new(claude()), recorded!("claude-budget"), reported("", 321, 42, Some(0.002_124)))]
#[case::claude_refused(
    Box::new(claude()),
    recorded!("claude-401"),
    reported("Failed to authenticate. API Error: 401 scripted 401", 0, 0, Some(0.0))
)]
#[case::codex(Box::new(codex()), recorded!("codex-ok"), reported("Done: hi from the fake model.", 222, 44, None))]
#[case::codex_refused(Box::new(codex()), recorded!("codex-401"), reported("", 0, 0, None))]
#[case::cursor(Box::new(cursor()), CURSOR, reported("Done.", 10, 2, None))]
fn last_message_and_usage_are_read(
    #[case] program: Box<dyn AgentProgram>,
    #[case] printed: &str,
    #[case] (text, usage): (&str, ReportedUsage),
) {
    let summary = program.parse_transcript(printed);
    assert_eq!((summary.text.as_str(), summary.usage), (text, usage));
}

fn reported(text: &str, input: u64, output: u64, cost: Option<f64>) -> (&str, ReportedUsage) {
    let usage = ReportedUsage {
        tokens: Some(Tokens { input, output }),
        cost: cost.and_then(Usd::from_dollars),
    };
    (text, usage)
}

#[test]
fn usage_of_an_interrupted_session_counts() {
    let whole = recorded!("claude-ok");
    let cut = &whole[..whole.rfind("{\"duration_api_ms\"").unwrap()];
    let summary = claude().parse_transcript(cut);
    assert_eq!(end_name(&summary), "missing");
    let seen = Tokens {
        input: 642,
        output: 2,
    };
    assert_eq!((summary.usage.tokens, summary.usage.cost), (Some(seen), None));
    let nothing = claude().parse_transcript("").usage;
    assert_eq!(
        (nothing.tokens, nothing.cost),
        (None, None),
        "unknown is never zero"
    );
}

#[test]
fn a_shortened_transcript_is_enough() {
    let noise = format!(
        "{{\"type\":\"user\",\"message\":{{\"content\":\"{}\"}}}}\n",
        "ö".repeat(100_000)
    );
    for (program, recording) in [
        (
            Box::new(claude()) as Box<dyn AgentProgram>,
            recorded!("claude-ok"),
        ),
        (Box::new(codex()), recorded!("codex-ok")),
    ] {
        let (first, rest) = recording.split_once('\n').unwrap();
        let mut kept = CapturedOutput::with_limit(1 << 20);
        kept.push(format!("{first}\n").as_bytes());
        (0..50).for_each(|_| kept.push(noise.as_bytes()));
        kept.push(rest.as_bytes());
        assert!(kept.complete().is_none());
        assert_eq!(
            program.parse_transcript(&kept.text()),
            program.parse_transcript(recording)
        );
    }
}

#[test]
fn an_impossible_reset_time_is_ignored() {
    let printed = recorded!("claude-429-reset").replace("1800000000", "9223372036854775807");
    assert_eq!(end_name(&claude().parse_transcript(&printed)), "rate limited");
}

#[rstest]
#[case::claude(Box::new(claude()), recorded!("claude-ok"), "Bash: echo from-real-claude > hello.txt && ls")]
#[case::codex(Box::new(codex()), recorded!("codex-ok"), "run: /bin/bash -lc 'echo from-real-codex > hello.txt && ls'")]
#[case::codex_refused(Box::new(codex()), recorded!("codex-401"), "")]
#[case::gemini(Box::new(Gemini::default()), recorded!("gemini-ok"), "run_shell_command: echo hi > made.txt")]
#[case::opencode(Box::new(OpenCode::default()), recorded!("opencode-ok"), "bash: echo hi > made.txt")]
fn the_actions_of_a_recorded_session_are_read(
    #[case] program: Box<dyn AgentProgram>,
    #[case] printed: &str,
    #[case] expected: &str,
) {
    let lines = printed.lines().map(|line| program.reported_actions(line));
    let actions: Vec<ReportedAction> = lines
        .flat_map(|actions| actions.expect("a line of the transcript"))
        .collect();
    match &actions[..] {
        [
            ReportedAction::Started { id, what },
            ReportedAction::Ended { id: ended, failed },
        ] => {
            assert_eq!((what.as_str(), id, failed), (expected, ended, &None));
        }
        [ReportedAction::Performed { what }] => {
            assert_eq!((what.as_str(), program.name()), (expected, "opencode"));
        }
        none => assert_eq!((none.len(), expected), (0, "")),
    }
    assert_eq!(program.reported_actions("a warning"), None);
    let cut = &printed[..printed.find('\n').unwrap() - 1];
    assert_eq!(program.reported_actions(cut), Some(Vec::new()));
}

#[rstest]
#[case::several_calls(
    Box::new(claude()),
    r#"{"type":"assistant","message":{"content":[{"type":"text","text":"x"},{"type":"tool_use","name":"Grep","input":{"pattern":"fn a","path":"src"}},{"type":"tool_use","name":"TodoWrite","input":{"todos":[]}}]}}"#,
    &["Grep: fn a", "TodoWrite"]
)]
#[case::not_of_the_agent(
    Box::new(claude()),
    r#"{"type":"user","message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}"#,
    &[]
)]
#[case::changed_files(
    Box::new(codex()),
    r#"{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"a.txt","kind":"add"},{"path":"b.txt","kind":"update"}]}}"#,
    &["edit: a.txt, b.txt"]
)]
#[case::cursor(
    Box::new(cursor()),
    r#"{"type":"tool_call","subtype":"started","tool_call":{"readToolCall":{"args":{"path":"README.md"}}}}"#,
    &["readToolCall: README.md"]
)]
#[case::no_transcript(Box::new(custom()), "{}", &[])]
fn an_action_is_its_tool_and_the_most_telling_argument(
    #[case] program: Box<dyn AgentProgram>,
    #[case] line: &str,
    #[case] expected: &[&str],
) {
    let actions = program.reported_actions(line).unwrap_or_default();
    let performed: Vec<ReportedAction> = expected
        .iter()
        .map(|what| ReportedAction::Performed {
            what: (*what).to_owned(),
        })
        .collect();
    assert_eq!(actions, performed);
}

#[rstest]
#[case::claude(
    Box::new(claude()),
    r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"Exit code 2\nno"}]}}"#,
    "Exit code 2\nno"
)]
#[case::claude_parts(
    Box::new(claude()),
    r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text","text":"no"}]}]}}"#,
    "no"
)]
#[case::codex(
    Box::new(codex()),
    r#"{"type":"item.completed","item":{"id":"t1","type":"command_execution","exit_code":2,"status":"failed"}}"#,
    "exit 2"
)]
#[case::gemini(
    Box::new(Gemini::default()),
    r#"{"type":"tool_result","tool_id":"t1","status":"error","output":"","error":{"type":"x","message":"no"}}"#,
    "no"
)]
fn a_failed_action_has_its_reason(
    #[case] program: Box<dyn AgentProgram>,
    #[case] line: &str,
    #[case] reason: &str,
) {
    let ended = ReportedAction::Ended {
        id: "t1".to_owned(),
        failed: Some(reason.to_owned()),
    };
    assert_eq!(program.reported_actions(line), Some(vec![ended]));
}

proptest! {
    /// Damage never turns a recorded failure into a success.
    #[test]
    fn damage_is_never_taken_for_success(at in 0_usize..6000, len in 0_usize..400, filler in ".{0,20}") {
        for (program, recording) in [
            (Box::new(claude()) as Box<dyn AgentProgram>, recorded!("claude-401")),
            (Box::new(codex()), recorded!("codex-401")),
        ] {
            let bytes = recording.as_bytes();
            let (from, to) = (at.min(bytes.len()), (at + len).min(bytes.len()));
            let damaged = [&bytes[..from], filler.as_bytes(), &bytes[to..]].concat();
            let summary = program.parse_transcript(&String::from_utf8_lossy(&damaged));
            prop_assert_ne!(summary.end, TranscriptEnd::Finished);
        }
    }

    /// Random text never panics and has no result.
    #[test]
    fn garbage_is_no_result(garbage in "[\\{\\}\\[\\]\":,a-z0-9\\n\\\\ ]{0,400}") {
        for program in [Box::new(claude()) as Box<dyn AgentProgram>, Box::new(codex()), Box::new(cursor())] {
            prop_assert_eq!(end_name(&program.parse_transcript(&garbage)), "missing");
        }
    }
}
