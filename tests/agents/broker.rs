//! What agents have in place of a credential, and what the host counts of their calls.

use rstest::rstest;

use crate::bench::{Bench, KEY, Program, Within, two_sessions};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::finish;

/// Looks for a text in every environment, on every command line and in every file but those of the system, without
/// spelling it out.
fn search(what: &str, (head, tail): (&str, &str)) -> String {
    format!(
        "h={head}; t={tail}; found=no; \
         if cat /proc/[0-9]*/environ 2>/dev/null | grep --text --quiet \"$h$t\"; then found=yes; fi; \
         if grep --recursive --no-messages --quiet --exclude-dir=usr --exclude-dir=proc --exclude-dir=sys \
         --exclude-dir=dev \"$h$t\" /; then found=yes; fi; \
         echo \"{what}: $found\" >> found.txt"
    )
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_sandbox_holds_a_phantom_and_never_the_key(
    #[values(Program::Claude, Program::Codex)] program: Program,
) {
    let mut sessions = two_sessions();
    let searched = [
        Turn::run(search("phantom", ("ralph-", "phantom-"))),
        Turn::run(search("key", KEY.split_at(6))),
        Turn::run("git add found.txt && git commit --quiet --message 'Say what was found'"),
    ];
    sessions[0].splice(0..0, searched);
    let bench = need!(Bench::within(Within::Sealed, program, Teller::of(sessions)).await);
    bench.run(&[]).expect(0, &["done: "]);
    assert_eq!(bench.handed_back("found.txt"), "phantom: yes\nkey: no\n");
    assert_eq!(bench.server.asked().len(), 9);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_could_break_the_budget_is_never_made(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let bench = need!(Bench::within(within, program, Teller::of(two_sessions())).await);
    let ended = bench.run(&["--set", "budget.max_tokens_total=3000"]);
    ended.expect(1, &["failed: budget exceeded", "of 3000"]);
    assert_eq!(bench.server.asked().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_claude_is_a_login_inside() {
    let bench = need!(Bench::within(Within::Sealed, Program::Claude, Teller::of(two_sessions())).await);
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
