//! What is read out of what the programs print: recordings, and whatever else may come.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::agent::{End, Program, Report, Spent, Trouble};
use crate::exec::Captured;
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

/// How a session ended, in a word.
fn end_of(report: &Report) -> String {
    match &report.end {
        End::Missing => "missing".to_owned(),
        End::Well => "well".to_owned(),
        End::Badly { .. } => "badly".to_owned(),
        End::OverBudget { .. } => "over budget".to_owned(),
        End::Trouble(Trouble::RateLimited { until: None, .. }) => "rate limited".to_owned(),
        End::Trouble(Trouble::RateLimited {
            until: Some(until), ..
        }) => {
            format!("rate limited until {}", until.as_second())
        }
        End::Trouble(Trouble::Unavailable { .. }) => "unavailable".to_owned(),
        End::Trouble(Trouble::Unauthorized { .. }) => "unauthorized".to_owned(),
        End::Trouble(Trouble::NoSuchModel { .. }) => "no such model".to_owned(),
    }
}

#[rstest]
#[case::ok(recorded!("claude-ok"), "well")]
#[case::a_bad_request(recorded!("claude-400"), "badly")]
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
fn claude_tells_how_it_ended(#[case] printed: &str, #[case] expected: &str) {
    assert_eq!(end_of(&claude().read(printed)), expected);
}

#[rstest]
#[case::ok(recorded!("codex-ok"), "well")]
#[case::a_wrong_key(recorded!("codex-401"), "unauthorized")]
#[case::a_spent_budget(recorded!("codex-402"), "over budget")]
#[case::no_such_model(recorded!("codex-404"), "no such model")]
#[case::a_rate_limit(recorded!("codex-429"), "rate limited")]
#[case::a_rate_limit_with_a_reset(recorded!("codex-429-reset"), "rate limited until 1800000000")]
#[case::out_of_order(recorded!("codex-500"), "unavailable")]
fn codex_and_its_session_file_tell_how_it_ended(#[case] printed: &str, #[case] expected: &str) {
    assert_eq!(end_of(&codex().read(printed)), expected);
}

#[test]
fn without_its_session_file_a_codex_that_failed_is_just_that() {
    let (transcript, _) = recorded!("codex-429").split_once("{\"timestamp\"").unwrap();
    assert_eq!(end_of(&codex().read(transcript)), "badly");
}

#[rstest]
#[case::claude(Box::new(claude()), recorded!("claude-ok"), told("Done: hi from the fake model. ", 642, 84, Some(0.004_248)))]
#[case::claude_stopped(Box::new(claude()), recorded!("claude-budget"), told("", 321, 42, Some(0.002_124)))]
#[case::claude_refused(
    Box::new(claude()),
    recorded!("claude-401"),
    told("Failed to authenticate. API Error: 401 scripted 401", 0, 0, Some(0.0))
)]
#[case::codex(Box::new(codex()), recorded!("codex-ok"), told("Done: hi from the fake model.", 222, 44, None))]
#[case::codex_refused(Box::new(codex()), recorded!("codex-401"), told("", 0, 0, None))]
#[case::cursor(Box::new(cursor()), CURSOR, told("Done.", 10, 2, None))]
fn last_words_and_usage_are_read(
    #[case] program: Box<dyn Program>,
    #[case] printed: &str,
    #[case] (text, spent): (&str, Spent),
) {
    let report = program.read(printed);
    assert_eq!((report.text.as_str(), report.spent), (text, spent));
}

fn told(text: &str, input: u64, output: u64, cost: Option<f64>) -> (&str, Spent) {
    let spent = Spent {
        tokens: Some(Tokens { input, output }),
        cost: cost.and_then(Usd::from_dollars),
    };
    (text, spent)
}

#[test]
fn what_a_session_used_before_it_was_cut_short_counts() {
    let whole = recorded!("claude-ok");
    let cut = &whole[..whole.rfind("{\"duration_api_ms\"").unwrap()];
    let report = claude().read(cut);
    assert_eq!(end_of(&report), "missing");
    let seen = Tokens {
        input: 642,
        output: 2,
    };
    assert_eq!((report.spent.tokens, report.spent.cost), (Some(seen), None));
    let nothing = claude().read("").spent;
    assert_eq!(
        (nothing.tokens, nothing.cost),
        (None, None),
        "unknown is never zero"
    );
}

#[test]
fn the_kept_part_of_a_huge_transcript_is_enough() {
    let noise = format!(
        "{{\"type\":\"user\",\"message\":{{\"content\":\"{}\"}}}}\n",
        "ö".repeat(100_000)
    );
    for (program, recording) in [
        (Box::new(claude()) as Box<dyn Program>, recorded!("claude-ok")),
        (Box::new(codex()), recorded!("codex-ok")),
    ] {
        let (first, rest) = recording.split_once('\n').unwrap();
        let mut kept = Captured::with_limit(1 << 20);
        kept.push(format!("{first}\n").as_bytes());
        (0..50).for_each(|_| kept.push(noise.as_bytes()));
        kept.push(rest.as_bytes());
        assert!(kept.complete().is_none());
        assert_eq!(program.read(&kept.text()), program.read(recording));
    }
}

#[test]
fn a_reset_beyond_all_time_is_none() {
    let printed = recorded!("claude-429-reset").replace("1800000000", "9223372036854775807");
    assert_eq!(end_of(&claude().read(&printed)), "rate limited");
}

proptest! {
    /// A recording, damaged anywhere, is read without a word; and it never turns from bad to good.
    #[test]
    fn damage_is_never_taken_for_success(at in 0_usize..6000, len in 0_usize..400, filler in ".{0,20}") {
        for (program, recording) in [
            (Box::new(claude()) as Box<dyn Program>, recorded!("claude-401")),
            (Box::new(codex()), recorded!("codex-401")),
        ] {
            let bytes = recording.as_bytes();
            let (from, to) = (at.min(bytes.len()), (at + len).min(bytes.len()));
            let damaged = [&bytes[..from], filler.as_bytes(), &bytes[to..]].concat();
            let report = program.read(&String::from_utf8_lossy(&damaged));
            prop_assert_ne!(report.end, End::Well);
        }
    }

    /// Anything at all is read without a word.
    #[test]
    fn garbage_is_no_result(garbage in "[\\{\\}\\[\\]\":,a-z0-9\\n\\\\ ]{0,400}") {
        for program in [Box::new(claude()) as Box<dyn Program>, Box::new(codex()), Box::new(cursor())] {
            prop_assert_eq!(end_of(&program.read(&garbage)), "missing");
        }
    }
}
