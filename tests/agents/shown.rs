//! What a person sees of an agent program while it works.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;

use crate::bench::{Bench, Program, Within};
use crate::need;
use crate::support::model_server::{Teller, Turn};

/// In place of `claude`: prints a recorded transcript, with a command that would colour the terminal.
const REPLAY: &str = r#"#!/bin/sh
if test "$1" = --version; then echo "0.0.0 (replay)"; exit; fi
sed 's/ && ls/ \&\& printf \\u001b[31m/' RECORDED
"#;

const ACTION: &str = "  + Bash: echo from-real-claude > hello.txt && printf \\u001b[31m\n";

#[rstest]
#[case::quietly(&[], false)]
#[case::with_the_output_of_commands(&["-v"], false)]
#[case::with_transcripts(&["-vv"], true)]
#[tokio::test(flavor = "multi_thread")]
async fn each_action_is_a_line_and_the_transcript_is_shown_on_request(
    #[case] args: &[&str],
    #[case] has_transcript: bool,
) {
    let recorded = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/agents/claude-ok.jsonl"
    );
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("claude");
    fs::write(&program, REPLAY.replace("RECORDED", recorded)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let teller = Teller::by(|_| Turn::say("Go on."));
    let folder = folder.path().to_owned();
    let bench = need!(Bench::of(Within::Directory, Program::Claude, teller, folder).await);
    let ended = bench.run(&[args, &["--max-iterations", "1"]].concat());
    ended.expect(1, &[ACTION, "= Done: hi from the fake model."]);
    assert_eq!(ended.stderr.matches(ACTION).count(), 1, "{ended:?}");
    assert_eq!(
        ended.stderr.contains("| {\"type\":\"assistant\""),
        has_transcript,
        "{ended:?}"
    );
    let log = fs::read_to_string(bench.place.run_dir().join("events.jsonl")).unwrap();
    assert!(log.contains("\"event\":\"transcript\""), "{log}");
}
