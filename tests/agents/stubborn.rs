//! Programs that do not take no for an answer, and one that has others ask for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rstest::rstest;
use tempfile::TempDir;

use crate::bench::{Bench, Program, Within};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::traces::processes_with;

/// In place of `claude`: works a little, calls until it is refused, and then calls on and on, also from a child that left
/// the group of its parent.
const STUBBORN: &str = r#"#!/bin/sh
if test "$1" = --version; then echo "0.0.0 (stubborn)"; exit; fi
call() {
    curl --silent --max-time 5 --header "x-api-key: $ANTHROPIC_API_KEY" --header "anthropic-version: 2023-06-01" \
        --data '{"model": "first-model", "max_tokens": 1000, "messages": [{"role": "user", "content": "go on"}]}' \
        "$ANTHROPIC_BASE_URL/v1/messages"
}
echo hello > a.txt
git add a.txt
git commit --quiet --message 'Say hello'
setsid sleep 9876MARK &
while true; do call > /dev/null; sleep 0.1; done
"#;

/// In place of `claude`: calls once, and leaves a test behind that calls three times with what this session was given.
const SLY: &str = r#"#!/bin/sh
if test "$1" = --version; then echo "0.0.0 (sly)"; exit; fi
cat > call.sh <<END
curl --silent --max-time 5 --header "x-api-key: $ANTHROPIC_API_KEY" --header "anthropic-version: 2023-06-01" \
    --data '{"model": "first-model", "max_tokens": 1000, "messages": [{"role": "user", "content": "go on"}]}' \
    "$ANTHROPIC_BASE_URL/v1/messages"
END
sh call.sh
echo 'for call in 1 2 3; do sh call.sh > answer.txt; cat answer.txt; done' > test.sh
git add call.sh test.sh
git commit --quiet --message 'Have the tests call'
"#;

/// A folder with this program in it, which every user can read.
fn folder(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("claude");
    fs::write(&program, text).unwrap();
    for path in [dir.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = dir.path().to_owned();
    (dir, path)
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_calls_on_over_its_budget_is_ended_at_once(
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let mark = format!("{}.{}", std::process::id(), fastrand::u32(..));
    let (_dir, folder) = folder(&STUBBORN.replace("MARK", &mark));
    let last_call: Arc<Mutex<Option<Instant>>> = Arc::default();
    let noted = last_call.clone();
    let teller = Teller::by(move |_| {
        *noted.lock().unwrap() = Some(Instant::now());
        Turn::say("Go on.")
    });
    let bench = need!(Bench::of(within, Program::Claude, teller, folder).await);
    bench.server.use_tokens(900);
    let ended = bench.run(&["--set", "budget.max_tokens_total=4000"]);
    ended.expect(1, &["failed: budget exceeded", "of 4000", "max_tokens_total"]);
    // It was refused a moment after its last call.
    let went_on = last_call.lock().unwrap().unwrap().elapsed();
    assert!(went_on < Duration::from_secs(30), "{went_on:?}");
    // Each uses 942 and may use some 1060: after four of them there is no room for a fifth.
    assert_eq!(bench.server.asked().len(), 4);
    assert_eq!(bench.place.status()["tokens"], 4 * 942);
    assert_eq!(bench.handed_back_so_far("a.txt"), "hello\n");
    assert_eq!(processes_with(&mark), Vec::<PathBuf>::new());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_test_command_cannot_spend_what_no_session_answers_for(
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let (_dir, folder) = folder(SLY);
    let teller = Teller::by(|_| Turn::say("Go on."));
    let bench = need!(Bench::of(within, Program::Claude, teller, folder).await);
    bench.server.use_tokens(900);
    let ended = bench.run(&["--set", "budget.max_iterations=2"]);
    ended.expect(1, &["max_iterations"]);
    // One call of each session; those of the tests between them were refused, and said why.
    assert_eq!(bench.server.asked().len(), 2, "{ended:?}");
    assert_eq!(bench.place.status()["tokens"], 2 * 942);
    let tested = bench.place.noted("iterations/1/test_output.txt");
    assert_eq!(tested.matches("could use").count(), 3, "{tested}");
}
