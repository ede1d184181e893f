//! What strangers wrote is shown without anything that a terminal would obey: in every command, on pipes too.

use std::fs;
use std::process::Command;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use crate::need;
use crate::support::ralph::{
    Ended, Live, Place, TASK, call, commit, finish, in_place_of, run, script, whole_task, write,
};
use crate::support::skip;

/// Pieces that end a line, colour it, move the cursor, set the title, open a link, ring, or turn the direction of writing.
const PIECES: [&str; 14] = [
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x1bc",
    "\x07",
    "\x08",
    "\r",
    "\x0c",
    "\x7f",
    "\u{9b}2J",
    "\u{85}",
    "\u{202e}",
    "\u{2066}",
    "\u{200f}",
];

fn hostile() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(PIECES.to_vec());
    let words = prop::collection::vec((piece, "[a-z]{1,3}"), 1..6);
    words.prop_map(|words| {
        let parts = words.iter().flat_map(|(piece, word)| [word.as_str(), *piece]);
        parts.chain(["end"]).collect::<String>()
    })
}

fn is_obeyed(c: char) -> bool {
    let turns = ['\u{61c}', '\u{200e}', '\u{200f}'];
    let is_turn = turns.contains(&c)
        || ('\u{2028}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c);
    !matches!(c, '\n' | '\t') && (c.is_control() || is_turn)
}

#[track_caller]
fn assert_harmless(what: &str, text: &str) {
    if let Some(at) = text.find(is_obeyed) {
        let before = text[..at].chars().rev().take(80).collect::<String>();
        let before: String = before.chars().rev().collect();
        panic!("{what} has {:?} after {before:?}", text[at..].chars().next());
    }
}

#[track_caller]
fn assert_shown(args: &[&str], ended: &Ended) {
    assert_harmless(&format!("stdout of {args:?}"), &ended.stdout);
    assert_harmless(&format!("stderr of {args:?}"), &ended.stderr);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_stranger_wrote_commands_a_terminal(text in hostile(), other in hostile()) {
        let place = Place::new();
        place.write("ralph_task.md", &TASK.replace("Say hello", &format!("Say hello {text}")).replace("a.txt says", &format!("a.txt {other} says")));
        place.write(&format!("of the user {text}"), "x\n");
        place.git(&["add", "of the user*"]);
        place.git(&["commit", "--quiet", "--message", &text]);
        let say = format!("printf '%s\\n' '{other}' '{text}' >&2; exit 3");
        let first = json!({
            "summary": text,
            "actions": [run(&format!("printf x > 'new {other}'")), run(&say), commit(&other)],
        });
        let mut last = whole_task();
        last["summary"] = json!(format!("{other} {text}"));
        let steps = json!({"iterations": [[call(&first)], [call(&last)]]});
        for format in [&["-v"][..], &["--json"], &[]] {
            let ended = finish(&mut place.scripted(&steps, format));
            assert_shown(format, &ended);
            prop_assert_eq!(ended.code, Some(0), "{:?}", ended);
        }
        for dir in place.runs() {
            let pull_request = fs::read_to_string(dir.join("pull-request.md")).unwrap();
            assert_harmless("pull-request.md", &pull_request);
            for log in ["activity.log", "errors.log"] {
                assert_harmless(log, &fs::read_to_string(dir.join("ralph").join(log)).unwrap());
            }
        }
        let runs = place.runs();
        let id = runs[0].file_name().unwrap().to_str().unwrap().to_owned();
        for args in [
            &["status"][..], &["status", &id], &["status", "--json"], &["logs", &id], &["logs", "--json", &id],
            &["diff", &id], &["diff", "--stat", &id], &["watch"], &["watch", &id], &["watch", &text], &["lint"], &["lint", &text], &["note", &id, &text],
            &["config", "show", "--set", &format!("git.user_name={text}")], &["config", "show", "--json", "--set", &format!("git.user_name={text}")],
            &["run", "--set", &text], &["run", &text], &["run", "--agent", &text], &["run", "--script", &text],
            &["status", &text], &[&text], &["resume", &text], &["--config", &text, "run"], &["sandbox", "exec", &text, "--", &other],
            &["network", "suggest", "--from", &text], &["run", "--type", &text],
        ] {
            assert_shown(args, &place.run(args));
        }
        let diff = place.run(&["diff", "--raw", &id]);
        prop_assert!(diff.stdout.contains("hello"), "{:?}", diff);
    }
}

#[test]
fn a_patch_keeps_its_control_characters_when_it_is_asked_for_as_it_is() {
    let place = Place::new();
    let mut answer = whole_task();
    let actions = answer["actions"].as_array_mut().unwrap();
    actions.insert(0, write("dos.txt", "one\r\n\x1b[1mtwo\r\n"));
    place.run_script(&script([answer])).expect(0, &[]);
    let shown = place.run(&["diff"]).stdout;
    assert!(shown.contains("+\\u001b[1mtwo\\u000d\n"), "{shown}");
    let raw = place.run(&["diff", "--raw"]).stdout;
    assert!(raw.contains("+\x1b[1mtwo\r\n"), "{raw}");
}

#[rstest]
#[case::help(&["--help"])]
#[case::status(&["status", "--json"])]
#[case::schema(&["config", "schema"])]
fn output_that_cannot_be_written_is_a_failure(#[case] args: &[&str]) {
    let full = need!(fs::OpenOptions::new().write(true).open("/dev/full"));
    let place = Place::new();
    Live::start_with(&mut place.ralph(args), full)
        .wait()
        .expect(1, &["ralph: cannot write to stdout"]);
}

#[test]
fn a_run_whose_events_cannot_be_written_ends_as_it_should_and_fails() {
    let full = need!(fs::OpenOptions::new().write(true).open("/dev/full"));
    let place = Place::new();
    let steps = script([whole_task()]);
    let ended = Live::start_with(&mut place.scripted(&steps, &["--json"]), full).wait();
    ended.expect(
        1,
        &["ralph: cannot write to stdout: ", "hint: ", "ralph logs --json"],
    );
    assert_eq!(
        ended.stderr.matches("cannot write").count(),
        1,
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    assert_eq!(place.status()["state"], "done");
    assert!(place.run_dir().join("pull-request.md").exists());
}

#[test]
fn one_is_never_shown_as_many() {
    let place = Place::new();
    let mut first = call(&json!({"summary": "one line", "actions": [write("x", "y\n"), commit("m")]}));
    first["tokens"] = json!({"input": 1, "output": 0});
    let ended = finish(&mut place.scripted(&json!({"iterations": [[first]]}), &["--max-iterations", "1"]));
    ended.expect(1, &["the one iteration is spent", "(1 token, "]);
    let mut shown = vec![
        ended.stderr,
        place.run(&["logs"]).stdout,
        place.run(&["status"]).stdout,
    ];
    shown.push(place.run(&["diff", "--stat"]).stdout);
    place
        .run(&["resume", "--set", "budget.max_tokens_total=1"])
        .expect(1, &[]);
    shown.push(place.run(&["logs"]).stdout);
    let nouns = "iterations tokens lines bytes files minutes hunks checkboxes attempts calls";
    for noun in nouns.split(' ') {
        for text in &shown {
            let many = format!(" 1 {noun}");
            assert!(
                !text.contains(&many) && !text.contains(&format!("(1 {noun}")),
                "{many}: {text}"
            );
        }
    }
}

#[test]
fn a_huge_argument_is_cut_in_the_message() {
    let huge = "x".repeat(50_000);
    let ended = Place::new().run(&["status", &huge]);
    ended.expect(2, &["ralph: ", "characters ...]"]);
    assert!(ended.stderr.len() < 2000, "{}", ended.stderr.len());
}

#[test]
fn a_dumb_terminal_gets_no_colour() {
    need!(skip::program("script"));
    let place = Place::new();
    let shown = |term: &str| {
        let ralph = place.ralph(&[]);
        let line = format!("{} diff r23456789", ralph.get_program().display());
        let mut command = Command::new("script");
        in_place_of(&mut command, &ralph);
        command
            .env("TERM", term)
            .args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        finish(&mut command).stdout
    };
    let (colourful, dumb) = (shown("xterm"), shown("dumb"));
    assert!(colourful.contains("\x1b[1;31mralph:\x1b[0m"), "{colourful:?}");
    assert!(dumb.contains("ralph:") && !dumb.contains('\x1b'), "{dumb:?}");
}
