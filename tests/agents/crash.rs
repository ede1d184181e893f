//! What sessions used that were cut short by `kill -9`: counted, and counted once.

use std::collections::BTreeMap;
use std::fs;

use rstest::rstest;
use serde_json::Value;

use crate::bench::{Bench, Program, Within, whole_task};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::{Live, eventually, finish};

/// A model that takes the second call of its first two sessions and never answers it, and then does the task.
fn hangs_twice() -> Teller {
    let whole = whole_task();
    Teller::by(move |asked| match (asked.session, asked.turn) {
        (0 | 1, 0) => Turn::run("true"),
        (0 | 1, _) => Turn::Hang,
        (_, turn) => whole[turn].clone(),
    })
}

/// Starts ralph, and kills it as soon as the model was asked so often.
fn kill_at(bench: &Bench, args: &[&str], calls: usize) {
    let live = Live::start(&mut bench.ralph(args));
    eventually("the model is asked", || bench.server.asked().len() >= calls);
    live.signal("KILL");
    live.wait();
}

/// The tokens that the calls of the only run cost, as the meter wrote them down.
fn metered(bench: &Bench) -> u64 {
    let text = fs::read_to_string(bench.place.run_dir().join("spending.jsonl")).unwrap();
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(call) = line["call"].as_u64() {
            let tokens = &line["tokens"];
            let total = tokens["input"].as_u64().unwrap() + tokens["output"].as_u64().unwrap();
            calls.insert(call, total);
        }
    }
    calls.values().sum()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_killed_sessions_used_is_counted_once(
    #[values(Program::Claude, Program::Codex)] program: Program,
) {
    let bench = need!(Bench::within(Within::Directory, program, hangs_twice()).await);
    kill_at(&bench, &["run"], 2);
    kill_at(&bench, &["resume"], 4);
    let ended = finish(&mut bench.ralph(&["resume"]));
    ended.expect(0, &["done: "]);
    assert_eq!(bench.server.asked().len(), 4 + 3);
    let answered = program.api().tokens() * (2 + 3);
    let spent = bench.place.status()["tokens"].as_u64().unwrap();
    assert_eq!(spent, metered(&bench));
    // The two calls that never came back cost what was set aside for them.
    assert!(spent > answered + 2 * 1000, "{spent} of {answered}");
}

/// What is set aside for one call is more than half of this budget: after the crash there is no room for another one.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_session_used_leaves_less_for_the_next() {
    let bench = need!(Bench::within(Within::Directory, Program::Claude, hangs_twice()).await);
    let least = set_aside_for_a_call(&bench);
    let budget = format!("budget.max_tokens_total={}", least * 3 / 2);
    kill_at(&bench, &["run", "--set", &budget], 2);
    let ended = finish(&mut bench.ralph(&["resume"]));
    ended.expect(1, &["failed: budget exceeded"]);
    assert_eq!(bench.server.asked().len(), 2, "{ended:?}");
}

/// What the first call of a session is refused for, where next to nothing is allowed.
fn set_aside_for_a_call(bench: &Bench) -> u64 {
    let refused = bench.run(&["--set", "budget.max_tokens_total=2"]);
    let (_, said) = refused.stderr.split_once("could use ").unwrap();
    fs::remove_dir_all(bench.place.run_dir()).unwrap();
    said.split(' ').next().unwrap().parse().unwrap()
}
