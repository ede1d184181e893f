//! Which hosts an agent reaches: its model, through the gateway, and no host that is not allowed.

use std::collections::BTreeSet;

use rstest::rstest;

use crate::bench::{Bench, Program, Within, one_session};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::finish;

/// `wanted` are the hosts that a program tries by itself. The name of its vendor's API is not among them: a program that
/// tries TLS there first waits for it in vain before its first call.
#[rstest]
#[case::claude(Program::Claude, &[])]
#[case::codex(Program::Codex, &["api.github.com", "chatgpt.com", "github.com"])]
#[case::opencode(Program::OpenCode, &["registry.npmjs.org"])]
#[tokio::test(flavor = "multi_thread")]
async fn an_allowlist_opens_the_model_to_an_agent_through_the_gateway_alone(
    #[case] program: Program,
    #[case] wanted: &[&str],
) {
    let host = program.host();
    let mut sessions = one_session();
    sessions[0].splice(
        0..0,
        [
            Turn::run("curl --silent --max-time 5 https://elsewhere.example/ || true"),
            // Around the gateway's own door, by TLS, which would hide what is said.
            Turn::run(format!(
                "curl --silent --max-time 5 --insecure https://{host}/ && exit 1 || true"
            )),
        ],
    );
    let bench = need!(Bench::within(Within::Sealed, program, Teller::of(sessions)).await);
    let ended = finish(&mut bench.ralph(&[
        "run",
        "--set",
        "sandbox.network.policy=allowlist",
        "--set",
        "sandbox.network.allowed=unused.example",
    ]));
    ended.expect(0, &["ready: network policy: `allowlist` holds", "done: "]);
    let asked = std::fs::read_to_string(bench.place.run_dir().join("network.jsonl")).unwrap();
    let reached: Vec<serde_json::Value> = asked
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|asked: &serde_json::Value| asked["verdict"] == "allowed" && asked["protocol"] != "dns")
        .collect();
    assert!(!reached.is_empty(), "{asked}");
    for asked in &reached {
        assert!(asked["host"] == host && asked["port"] == 80, "{asked}");
    }
    let blocked: BTreeSet<&str> = ended
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("blocked ")?.split(' ').next())
        .collect();
    let expected: BTreeSet<&str> = wanted
        .iter()
        .copied()
        .chain(["elsewhere.example", host])
        .collect();
    assert_eq!(blocked, expected);
}
