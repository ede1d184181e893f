//! Whole tasks.

use rstest::rstest;

use crate::bench::{Bench, Program, says_hello_in};
use crate::need;

#[rstest]
#[case::claude(Program::Claude)]
#[case::codex(Program::Codex)]
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_in_fresh_sessions_and_the_pull_request_holds_the_work(#[case] program: Program) {
    let sessions = vec![says_hello_in("a.txt", "M1.1"), says_hello_in("b.txt", "M1.2")];
    let bench = need!(Bench::new(program, sessions).await);
    let ended = bench.run(&[]);
    ended.expect(0, &["[x] M1.1", "[x] M1.2", "b.txt says hello now.", "done: "]);
    assert_eq!(bench.handed_back("a.txt"), "hello\n");
    assert_eq!(bench.handed_back("b.txt"), "hello\n");
}
