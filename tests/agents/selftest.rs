//! `ralph selftest` with the real programs.

use rstest::rstest;
use serde_json::Value;

use crate::bench::{Bench, Program, Within};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::{Live, eventually, finish};

fn ready() -> Teller {
    Teller::of(vec![vec![Turn::say("ready")]])
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_one_round_and_nothing_is_left(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let bench = need!(Bench::within(within, program, ready()).await);
    let ended = finish(&mut bench.ralph(&["selftest", "--json"]));
    ended.expect(0, &[]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&report["agent"], &report["failed"]),
        (&program.name().into(), &0.into())
    );
    let round = format!("agent {} completes a session", program.name());
    for name in [
        "create sandbox",
        "network policy",
        "git is installed",
        &round,
        "sandbox is removed",
    ] {
        assert_eq!(outcome(&report, name), Some(&Value::Null), "{name}: {report:#}");
    }
    assert_eq!(bench.server.asked().len(), 1);
    expect_nothing_left(&bench);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_check_is_named_and_the_rest_is_tried() {
    let refused = Teller::of(vec![vec![Turn::refuse(400, "invalid_request_error")]]);
    let bench = need!(Bench::within(Within::Sealed, Program::Claude, refused).await);
    let ended = finish(&mut bench.ralph(&["selftest"]));
    ended.expect(1, &["ralph: 1 of ", "checks failed with the `docker` provider"]);
    for line in [
        "PASS  agent claude is installed",
        "FAIL  agent claude completes a session: ",
        "PASS  sandbox is removed",
    ] {
        assert!(ended.stdout.contains(line), "{ended:?}");
    }
    assert!(
        ended
            .stdout
            .contains(" passed, 1 failed: provider docker, agent claude"),
        "{ended:?}"
    );
    expect_nothing_left(&bench);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_selftest_leaves_nothing(#[values(Within::Directory, Within::Sealed)] within: Within) {
    let bench = need!(Bench::within(within, Program::Claude, Teller::of(vec![vec![Turn::Hang]])).await);
    let live = Live::start(&mut bench.ralph(&["selftest"]));
    eventually("the round begins", || !bench.server.asked().is_empty());
    live.signal("INT");
    let ended = live.wait();
    ended.expect(1, &["ralph: interrupted"]);
    assert!(ended.stdout.contains("PASS  sandbox is removed"), "{ended:?}");
    expect_nothing_left(&bench);
}

/// What a check saw; `None` if there is no check of this name.
fn outcome<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    let checks = report["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|check| check["name"] == name)
        .map(|check| &check["seen"])
}

fn expect_nothing_left(bench: &Bench) {
    assert_eq!(bench.sandboxes(), "");
    assert_eq!(bench.place.runs(), Vec::<std::path::PathBuf>::new());
}
