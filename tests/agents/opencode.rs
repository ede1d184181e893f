//! The real `opencode`.

use std::path::PathBuf;

use crate::bench::{Bench, KEY, Program, Within, two_sessions, whole_task};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::finish;
use crate::traces::files_with;

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_with_a_brokered_key_and_its_calls_are_metered() {
    let bench = need!(Bench::new(Program::OpenCode, two_sessions()).await);
    let ended = bench.run(&[]);
    ended.expect(0, &["[x] M1.1", "[x] M1.2", "b.txt says hello now.", "done: "]);
    ended.expect(0, &["agent opencode: "]);
    assert_eq!(bench.handed_back("b.txt"), "hello\n");
    let asked = bench.server.asked();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[3].turn, 0, "the second session knows the first");
    assert_eq!(
        bench.place.status()["tokens"],
        Program::OpenCode.api().tokens() * 6
    );
    assert_eq!(files_with(&bench.place.home(), KEY), Vec::<PathBuf>::new());
    assert!(!ended.stderr.contains(KEY) && !ended.stdout.contains(KEY));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_pauses_the_run_with_a_hint() {
    let whole = whole_task();
    let teller = Teller::by(move |asked| match asked.session {
        0 => Turn::refuse(401, "UNAUTHENTICATED"),
        _ => whole[asked.turn].clone(),
    });
    let bench = need!(Bench::within(Within::Directory, Program::OpenCode, teller).await);
    let paused = bench.run(&[]);
    paused.expect(
        3,
        &[
            "paused: ",
            "the credential was refused",
            "put a valid one into `OPENAI_API_KEY`",
        ],
    );
    assert_eq!(bench.place.status()["iterations"], 0, "{paused:?}");
    finish(&mut bench.ralph(&["resume"])).expect(0, &["done: "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_refused_before_the_run_begins() {
    let bench = need!(Bench::new(Program::OpenCode, two_sessions()).await);
    let refused = finish(bench.ralph(&["run"]).env("OPENAI_API_KEY", "wrong-0123456789"));
    refused.expect(
        1,
        &[
            "ralph: not ready to begin: ",
            "refused it (HTTP 401)",
            "put a valid one into `OPENAI_API_KEY`",
        ],
    );
    assert_eq!(bench.server.asked().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_could_break_the_budget_is_never_made() {
    let bench = need!(Bench::new(Program::OpenCode, two_sessions()).await);
    let ended = bench.run(&["--set", "budget.max_tokens_total=3000"]);
    ended.expect(1, &["failed: budget exceeded", "of 3000"]);
    assert_eq!(bench.server.asked().len(), 0);
}
