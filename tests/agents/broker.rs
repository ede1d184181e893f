//! What agents have in place of a credential, and what the host counts of their calls.

use rstest::rstest;

use crate::bench::{Bench, KEY, Program, Within, one_session, says_hello_in};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::finish;

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_could_break_the_budget_is_never_made(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let bench = need!(Bench::within(within, program, Teller::of(one_session())).await);
    let ended = bench.run(&["--set", "budget.max_tokens_total=3000"]);
    ended.expect(1, &["failed: budget exceeded", "of 3000"]);
    assert_eq!(bench.server.asked().len(), 0);
}

/// Each turn uses 100000 tokens and may use some 80000: after three of them there is no room for a fourth.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_is_spent_amid_an_iteration_ends_the_run_and_keeps_the_work(
    #[values(Program::Claude, Program::Codex)] program: Program,
) {
    let mut endless = says_hello_in("a.txt", "M1.1");
    endless.truncate(2);
    endless.extend((0..20).map(|_| Turn::run("true")));
    let bench = need!(Bench::within(Within::Sealed, program, Teller::of(vec![endless])).await);
    bench.server.use_tokens(100_000);
    let ended = bench.run(&["--set", "budget.max_tokens_total=320000"]);
    ended.expect(1, &["failed: budget exceeded", "of 320000", "[x] M1.1"]);
    assert_eq!(bench.handed_back_so_far("a.txt"), "hello\n");
    let asked = bench.server.asked().len() as u64;
    assert!((2..=3).contains(&asked), "asked {asked} times");
    let spent = bench.place.status()["tokens"].as_u64().unwrap();
    assert!(spent >= asked * 100_000 && spent <= 320_000, "{spent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_claude_is_a_login_inside() {
    let bench = need!(Bench::within(Within::Sealed, Program::Claude, Teller::of(one_session())).await);
    let ended = finish(
        bench
            .ralph(&["run"])
            .env_remove("ANTHROPIC_API_KEY")
            .env("CLAUDE_CODE_OAUTH_TOKEN", KEY),
    );
    ended.expect(0, &["done: "]);
    let first = &bench.server.asked()[0];
    assert_eq!(first.header("authorization"), format!("Bearer {KEY}"));
}
