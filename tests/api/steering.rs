//! What can be asked of runs.

use std::fs;

use rstest::rstest;
use serde_json::json;

use crate::service::{Service, create_token, done, request, serve, user_file};
use crate::support::ralph::{Held, Place, TASK};

/// The mode in which notes are taken.
const GUIDED: &str = "[dashboard]\nmode = \"GUIDED\"\n";

#[test]
fn a_live_run_takes_what_is_asked_and_records_who_asked() {
    let place = Place::new();
    user_file(&place, GUIDED);
    let held = Held::start(&place);
    let service = Service::start(place);
    let run = service.place.run_id();
    let path = |operation: &str| format!("/api/runs/{run}/{operation}");
    let sign = json!({"name": "small steps", "trigger": "a large diff", "instruction": "split it"});
    let asked = service.post(&path("signs"), &sign).expect(202);
    assert_eq!(
        (&asked["state"], &asked["by"]),
        (&"pending".into(), &"tester".into())
    );
    service
        .post(&path("notes"), &json!({"text": "Mind the tests."}))
        .expect(202);
    service.post(&path("pause"), &json!({})).expect(202);
    held.let_go();
    held.live
        .wait()
        .expect(3, &["tester: sign: small steps", "tester: note: Mind the tests."]);
    let status = service.get(&format!("/api/runs/{run}"));
    assert_eq!(status["state"], "paused");
    let done = |what: &str| {
        let rows = status["interventions"].as_array().unwrap();
        rows.iter()
            .any(|row| row["what"] == what && row["by"] == "tester" && row["state"] == "done")
    };
    assert!(done("sign: small steps") && done("pause"), "{status}");
    service
        .post(&path("pause"), &json!({}))
        .expect_problem(422, "is not live");
    service
        .post(&path("retry"), &json!({"from": 7}))
        .expect_problem(422, "no iteration 7 to go back to");
}

#[test]
fn an_edited_task_is_linted_first() {
    let place = Place::new();
    let held = Held::start(&place);
    let service = Service::start(place);
    let task = format!("/api/runs/{}/task", service.place.run_id());
    let edit = |text: &str| service.ask("PUT", &task, Some(&json!({"text": text})));
    let problem = edit("# no frontmatter\n").expect_problem(422, "is not valid");
    let finding = &problem["findings"][0];
    assert!(
        finding["is_error"] == true && finding["fix"].is_string(),
        "{problem}"
    );
    let edited = TASK.replace("# Say hello", "# Say hello twice");
    assert_eq!(edit(&edited).expect(202)["what"], "edited task");
    let waiting = service.get(&format!("/api/runs/{}", service.place.run_id()));
    assert_eq!(waiting["interventions"][0]["state"], "pending");
    held.let_go();
    held.live.wait().expect(0, &["tester: edited task"]);
    let status = service.get(&format!("/api/runs/{}", service.place.run_id()));
    assert_eq!(status["task"], "Say hello twice");
}

#[test]
fn a_run_is_removed_only_at_rest_and_by_an_admin() {
    let place = Place::new();
    let held = Held::start(&place);
    let service = Service::start(place);
    let run = format!("/api/runs/{}", service.place.run_id());
    let steer = create_token(&service.place, "steerer", "steer");
    service
        .ask_as(&steer, "DELETE", &run, None)
        .expect_problem(403, "needs the scope `admin`");
    service
        .ask("DELETE", &run, None)
        .expect_problem(409, "is being worked on");
    held.let_go();
    held.live.wait().expect(0, &[]);
    service.ask("DELETE", &run, None).expect(204);
    service.ask("GET", &run, None).expect_problem(404, "");
    assert!(service.place.runs().is_empty());
}

#[test]
fn a_token_that_may_read_changes_nothing() {
    let service = Service::start(done());
    let run = service.place.run_id();
    let read = create_token(&service.place, "reader", "read");
    service
        .ask_as(&read, "GET", &format!("/api/runs/{run}"), None)
        .expect(200);
    for operation in [
        "pause",
        "stop",
        "rotate",
        "doctor",
        "notes",
        "signs",
        "hosts",
        "retry",
        "profile",
        "diagnosis",
    ] {
        let answer = service.ask_as(
            &read,
            "POST",
            &format!("/api/runs/{run}/{operation}"),
            Some(&json!({})),
        );
        answer.expect_problem(403, "needs the scope `steer`");
    }
    let task = format!("/api/runs/{run}/task");
    service
        .ask_as(&read, "PUT", &task, Some(&json!({"text": "x"})))
        .expect_problem(403, "");
}

#[test]
fn a_wrong_body_is_refused_with_the_reason() {
    let place = done();
    user_file(&place, GUIDED);
    let service = Service::start(place);
    let notes = format!("/api/runs/{}/notes", service.place.run_id());
    service
        .post(&notes, &json!({}))
        .expect_problem(400, "missing field `text`");
    service
        .post(&notes, &json!({"text": "a", "more": 1}))
        .expect_problem(400, "unknown field `more`");
    service
        .post(&notes, &json!({"text": "a"}))
        .expect_problem(422, "is done");
    let long = json!({"text": "a".repeat(2 * 1024 * 1024)});
    service.post(&notes, &long).expect_problem(413, "");
}

#[rstest]
#[case::refused("", 403)]
#[case::allowed("[api]\ndangerously_allow_local = true\n", 202)]
fn other_hosts_change_no_run_without_isolation(#[case] setting: &str, #[case] status: u16) {
    let place = Place::new();
    let held = Held::start(&place);
    user_file(&place, &format!("{GUIDED}{setting}"));
    let mut service = Service::start(place);
    let refused = service.place.run(&["serve", "--listen", "127.0.0.1"]);
    refused.expect(2, &["an address and a port"]);
    let (mut child, address) = serve(&service.place, "0.0.0.0:0");
    service.address = address.replace("0.0.0.0", "127.0.0.1");
    let run = service.place.run_id();
    let note = service.post(&format!("/api/runs/{run}/notes"), &json!({"text": "Run this."}));
    let edit = service.ask(
        "PUT",
        &format!("/api/runs/{run}/task"),
        Some(&json!({"text": TASK})),
    );
    // A pause adds no command.
    service
        .post(&format!("/api/runs/{run}/pause"), &json!({}))
        .expect(202);
    let _ = child.kill();
    let _ = child.wait();
    for answer in [note, edit] {
        assert_eq!(answer.status, status, "{answer:?}");
    }
    held.let_go();
    held.live.wait();
}

#[test]
fn other_hosts_are_served_only_with_a_token() {
    let place = Place::new();
    place
        .run(&["serve", "--listen", "0.0.0.0:0"])
        .expect_refused(&["no API token exists", "hint: `ralph api-token create NAME`"]);
}

#[test]
fn a_socket_file_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = done();
    let token = create_token(&place, "tester", "read");
    let path = place.path().join("api.sock");
    for _ in 0..2 {
        // The second one replaces the file that the first one left.
        let (mut child, _) = serve(&place, &format!("unix:{}", path.display()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let headers = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
        let answer = crate::service::ask_socket(
            path.to_str().unwrap(),
            &request("GET", "/api/runs", &headers, None),
        );
        assert_eq!(answer.expect(200)["runs"][0]["state"], "done");
        let _ = child.kill();
        let _ = child.wait();
    }
}
