//! What commands print with `--json` matches the schemas in `docs/reference/json`.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use ralph::id::RunId;
use ralph::sandbox::{SandboxActivity, SandboxListing, SandboxOwnership};
use serde_json::json;

use crate::support::json_shape;
use crate::support::ralph::{Place, finish, script, whole_task};

const NO_ENGINE: &str = "unix:///nonexistent/engine.sock";

/// Schemas whose commands need an engine, a registry or a service. The suites `images` and `broker` check them.
const ELSEWHERE: [&str; 5] = [
    "gateway-check",
    "image-prune",
    "image-pull",
    "image-push",
    "image-status",
];

/// Runs a command, which must print what its schema describes. Returns the name of the schema.
fn checked(command: &mut Command) -> &'static str {
    let ended = finish(command.env("DOCKER_HOST", NO_ENGINE).stdin(Stdio::null()));
    let args: Vec<&str> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
    json_shape::check(&args, &ended).unwrap_or_else(|| panic!("{args:?}: {ended:?}"))
}

#[test]
fn every_command_prints_what_its_schema_describes() {
    let place = Place::new();
    let mut seen = BTreeSet::from([checked(&mut place.scripted(&script([whole_task()]), &["--json"]))]);
    let run = place.run_id();
    let key = place.path().join("key.pem");
    std::fs::write(&key, place.run(&["evidence", "key"]).stdout).unwrap();
    let key = key.to_str().unwrap();
    let branch = place.status()["branch"].as_str().unwrap().to_owned();
    let audit = r#"{"at":"2026-01-01T00:00:00Z","protocol":"tls","host":"a.example","port":443,"verdict":"denied","rule":"","sent":1,"received":1}"#;
    std::fs::write(place.run_dir().join("network.jsonl"), format!("{audit}\n")).unwrap();
    place.run(&["api-token", "create", "laptop"]).expect(0, &[]);
    place.write("wrong.md", "no task\n");
    for args in [
        &["status"][..],
        &["status", &run],
        &["logs", &run],
        &["lint"],
        &["lint", "wrong.md"],
        &["evidence", "show", &branch],
        &["evidence", "verify", &branch, "--key", key],
        &["models"],
        &["models", "--prices"],
        &["doctor", "env"],
        &["config", "show"],
        &["image", "build", "--dry-run"],
        &["selftest", "--type", "local"],
        &["sandbox", "ls", "--type", "local"],
        &["sandbox", "prune", "--type", "local"],
        &["prune-sandboxes", "--type", "local"],
        &["network", "check", "pypi.org"],
        &["network", "suggest", "--from", &run],
        &["token", "check", "--agent", "claude", "--auth", "api-key"],
        &["check-token", "--agent", "claude", "--auth", "api-key"],
        &["api-token", "list"],
        &["demo"],
    ] {
        let mut command = place.ralph(args);
        seen.insert(checked(
            command
                .arg("--json")
                .env("ANTHROPIC_API_KEY", "sk-ant-api03-example"),
        ));
    }
    let all: BTreeSet<&str> = json_shape::names().into_iter().collect();
    let missing: Vec<&str> = all.difference(&seen).copied().collect();
    assert_eq!(missing, ELSEWHERE);
}

/// The provider `local` lists no sandboxes. What an engine lists is checked in the suite `docker`.
#[test]
fn a_listed_sandbox_is_what_its_schema_describes() {
    let listed = SandboxListing {
        id: "ralph-1".to_owned(),
        provider: "docker",
        run: Some(RunId::parse("r23456789").unwrap()),
        is_own: true,
        activity: SandboxActivity::Running,
        standing: SandboxOwnership::InUse,
        owner: None,
        image: Some("debian".to_owned()),
        workspace: "/workspace".into(),
        created: Some("2026-01-01T00:00:00Z".parse().unwrap()),
    };
    let mut value = serde_json::to_value([listed]).unwrap();
    assert_eq!(json_shape::mismatch("sandboxes", &value), None);
    value[0]["standing"] = json!("elsewhere");
    assert!(json_shape::mismatch("sandboxes", &value).is_some());
}

#[test]
fn no_schema_accepts_everything() {
    for name in json_shape::names() {
        for value in [json!({}), json!([{}]), json!(1), json!("text")] {
            assert!(
                json_shape::mismatch(name, &value).is_some(),
                "{name} accepts {value}"
            );
        }
    }
}
