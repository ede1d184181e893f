//! `ralph selftest`: a sandbox as a run would get it, tried out and removed.

use serde_json::{Value, json};

use crate::support::chat_server::{Answer, ChatServer};
use crate::support::ralph::{Place, finish};

/// A model that answers as the agent `actions` wants it.
async fn model() -> (ChatServer, String) {
    let answer = json!({"summary": "ready", "actions": []}).to_string();
    let server = ChatServer::start([Answer::text(&answer)]).await;
    let setting = format!("model_endpoint.base_url={}", server.base_url());
    (server, setting)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_sandbox_passes_and_nothing_is_left() {
    let place = Place::new();
    let (server, endpoint) = model().await;
    let ended = place.run(&["selftest", "--type", "local", "--json", "--set", &endpoint]);
    ended.expect(0, &[]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&report["provider"], &report["agent"], &report["image"]),
        (&"local".into(), &"actions".into(), &Value::Null)
    );
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(
        (&report["passed"], &report["failed"]),
        (&checks.len().into(), &0.into())
    );
    assert!(checks.iter().all(|check| check["seen"].is_null()), "{report:#}");
    assert!(
        checks
            .iter()
            .any(|check| check["name"] == "agent actions completes a session")
    );
    assert_eq!(server.requests().len(), 1);
    assert_eq!(place.runs(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn the_next_steps_are_about_the_selftest_and_no_run() {
    let ended = Place::new().run(&["selftest", "--type", "local"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("then `ralph selftest`"), "{ended:?}");
    assert!(!format!("{ended:?}").contains("ralph resume"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_check_is_reported_with_what_was_seen() {
    let place = Place::new();
    let (_server, endpoint) = model().await;
    // A shell, and nothing else: no git.
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for program in ["sh", "cat", "sleep"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), bin.join(program)).unwrap();
    }
    let mut command = place.ralph(&["selftest", "--type", "local", "--set", &endpoint]);
    let ended = finish(command.env("PATH", &bin));
    ended.expect(1, &["ralph: 1 of ", "checks failed with the `local` provider"]);
    assert!(
        ended.stdout.contains("\nFAIL  git is installed: ")
            && ended
                .stdout
                .contains(" (next: install git on this host, in a directory of `PATH`)\n")
            && ended.stdout.contains("\nPASS  sandbox is removed\n"),
        "{}",
        ended.stdout
    );
}
