//! The real `gemini`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bench::{Bench, KEY, Program, Within, two_sessions, whole_task};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::finish;
use crate::traces::files_with;

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_with_a_brokered_key_and_its_calls_are_metered() {
    let bench = need!(Bench::new(Program::Gemini, two_sessions()).await);
    let ended = bench.run(&[]);
    ended.expect(0, &["[x] M1.1", "[x] M1.2", "b.txt says hello now.", "done: "]);
    ended.expect(0, &["agent gemini: "]);
    assert_eq!(bench.handed_back("b.txt"), "hello\n");
    let asked = bench.server.asked();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[3].turn, 0, "the second session knows the first");
    assert_eq!(bench.place.status()["tokens"], Program::Gemini.api().tokens() * 6);
    assert_eq!(files_with(&bench.place.home(), KEY), Vec::<PathBuf>::new());
    assert!(!ended.stderr.contains(KEY) && !ended.stdout.contains(KEY));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_pauses_the_run_with_a_hint() {
    let whole = whole_task();
    // The prompt is the same after the pause, and with it what the server takes for the session.
    let accepted = Arc::new(AtomicBool::new(false));
    let is_accepted = accepted.clone();
    let teller = Teller::by(move |asked| {
        if is_accepted.load(Ordering::Relaxed) {
            whole[asked.turn].clone()
        } else {
            Turn::refuse(401, "UNAUTHENTICATED")
        }
    });
    let bench = need!(Bench::within(Within::Directory, Program::Gemini, teller).await);
    let paused = bench.run(&[]);
    paused.expect(
        3,
        &[
            "paused: ",
            "the credential was refused",
            "put a valid one into `GEMINI_API_KEY`",
        ],
    );
    assert_eq!(bench.place.status()["iterations"], 0, "{paused:?}");
    accepted.store(true, Ordering::Relaxed);
    finish(&mut bench.ralph(&["resume"])).expect(0, &["done: "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_refused_before_the_run_begins() {
    let bench = need!(Bench::new(Program::Gemini, two_sessions()).await);
    let refused = finish(bench.ralph(&["run"]).env("GEMINI_API_KEY", "wrong-0123456789"));
    refused.expect(
        1,
        &[
            "ralph: not ready to begin: ",
            "refused it (HTTP 401)",
            "put a valid one into `GEMINI_API_KEY`",
        ],
    );
    assert_eq!(bench.server.asked().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_could_break_the_budget_is_never_made() {
    let bench = need!(Bench::new(Program::Gemini, two_sessions()).await);
    let ended = bench.run(&["--set", "budget.max_tokens_total=3000"]);
    ended.expect(1, &["failed: budget exceeded", "of 3000"]);
    assert_eq!(bench.server.asked().len(), 0);
}
