//! What can be looked at.

use std::fs;

use serde_json::Value;

use crate::service::{Service, create_token, done};
use crate::support::ralph::{Place, doing, run, script, whole_task};

#[test]
fn a_run_is_shown_as_on_the_command_line() {
    let service = Service::start(done());
    let run = service.place.run_id();
    let mut status = service.get(&format!("/api/runs/{run}"));
    let details = status.as_object_mut().unwrap();
    for key in ["queue", "worker"] {
        assert_eq!(details.remove(key), Some(Value::Null), "{key}");
    }
    assert_eq!(status, service.place.status());
    let list = service.get("/api/runs");
    assert_eq!((rows(&list, "runs").len(), &list["next"]), (1, &Value::Null));
    for key in [
        "run",
        "state",
        "reason",
        "task",
        "branch",
        "iterations",
        "tokens",
        "pull_request",
    ] {
        assert_eq!(list["runs"][0][key], status[key], "{key}");
    }
    let events = service.get(&format!("/api/runs/{run}/events"));
    let log = fs::read_to_string(service.place.run_dir().join("events.jsonl")).unwrap();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let listed: Vec<Value> = rows(&events, "events")
        .iter()
        .map(|row| row["event"].clone())
        .collect();
    assert_eq!(listed, lines);
    assert_eq!(events["next"], log.len());
    let none = service.get(&format!("/api/runs/{run}/events?after={}", log.len()));
    assert_eq!(rows(&none, "events").len(), 0);
}

#[test]
fn iterations_evidence_and_changes_are_shown() {
    let service = Service::start(done());
    let run = service.place.run_id();
    let iterations = service.get(&format!("/api/runs/{run}/iterations"));
    let first = &iterations["iterations"][0];
    assert_eq!(
        (&first["iteration"], &first["summary"]),
        (&1.into(), &"some work".into())
    );
    let whole = service.get(&format!("/api/runs/{run}/iterations/1"));
    assert_eq!(whole["tip"], first["tip"]);
    let evidence = service.get(&format!("/api/runs/{run}/evidence"));
    assert_eq!(evidence["commit"], first["tip"]);
    let commands: Vec<&str> = rows(&evidence, "commands")
        .iter()
        .map(|row| row["command"].as_str().unwrap())
        .collect();
    assert!(commands.contains(&"grep -q hello a.txt"), "{evidence}");
    let total = service.get(&format!("/api/runs/{run}/diff"));
    assert!(total["diff"].as_str().unwrap().contains("+++ b/a.txt"), "{total}");
    assert_eq!(
        (&total["is_cut"], &total["bytes"]),
        (&false.into(), &total["diff"].as_str().unwrap().len().into())
    );
    assert_eq!(service.get(&format!("/api/runs/{run}/diff?iteration=1")), total);
    let stat = service.get(&format!("/api/runs/{run}/diff?stat=true"));
    assert!(
        stat["diff"].as_str().unwrap().contains("2 files changed"),
        "{stat}"
    );
    service
        .ask("GET", &format!("/api/runs/{run}/iterations/7"), None)
        .expect_problem(404, "has no iteration 7");
    service
        .ask("GET", &format!("/api/runs/{run}/diff?iteration=7"), None)
        .expect_problem(404, "has no iteration 7");
    let network = service.get(&format!("/api/runs/{run}/network"));
    assert_eq!(network, serde_json::json!({"reached": [], "blocked": []}));
}

#[test]
fn the_task_and_run_files_are_shown_and_no_other() {
    let service = Service::start(done());
    let (run, dir) = (service.place.run_id(), service.place.run_dir());
    std::os::unix::fs::symlink("/etc/passwd", dir.join("ralph/link.md")).unwrap();
    std::os::unix::fs::symlink("/etc", dir.join("ralph/etc")).unwrap();
    let files = service.get(&format!("/api/runs/{run}/files"));
    let files: Vec<&str> = rows(&files, "files")
        .iter()
        .map(|path| path.as_str().unwrap())
        .collect();
    assert!(
        files.contains(&"ralph_task.md") && files.contains(&".ralph/iterations/1/prompt.md"),
        "{files:?}"
    );
    assert!(
        !files
            .iter()
            .any(|path| path.contains("link") || path.contains("etc")),
        "{files:?}"
    );
    for path in files {
        let file = service.get(&format!("/api/runs/{run}/file?path={path}"));
        assert_eq!(
            file["text"].as_str().unwrap().len(),
            usize::try_from(file["bytes"].as_u64().unwrap()).unwrap()
        );
    }
    let task = service.get(&format!("/api/runs/{run}/file?path=ralph_task.md"));
    assert!(task["text"].as_str().unwrap().contains("- [x] M1.1"), "{task}");
    for path in [
        "run.json",
        "journal.jsonl",
        ".ralph",
        ".ralph/../run.json",
        ".ralph/./../../../../../../etc/passwd",
        "/etc/passwd",
        ".ralph/%2fetc/passwd",
        ".ralph/link.md",
        ".ralph/etc/passwd",
        ".ralph/notes.md%00",
        "ralph_task.md/..",
    ] {
        let answer = service.ask("GET", &format!("/api/runs/{run}/file?path={path}"), None);
        answer.expect_problem(404, "has no file");
    }
}

#[test]
fn pages_of_runs_and_events_join_without_gap_or_double() {
    let place = done();
    place.run_script(&script([whole_task()])).expect(0, &[]);
    place.run_script(&script([whole_task()])).expect(0, &[]);
    let service = Service::start(place);
    let all = service.get("/api/runs");
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let page = service.get(&format!("/api/runs?limit=1{after}"));
        paged.extend(rows(&page, "runs").iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!((&paged, paged.len()), (rows(&all, "runs"), 3));
    let run = paged[0]["run"].as_str().unwrap();
    let whole = service.get(&format!("/api/runs/{run}/events"));
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = service.get(&format!("/api/runs/{run}/events?after={after}&limit=3"));
        if rows(&page, "events").is_empty() {
            break;
        }
        events.extend(rows(&page, "events").iter().cloned());
        after = page["next"].as_u64().unwrap();
    }
    assert_eq!(&events, rows(&whole, "events"));
    for after in ["1", "18446744073709551615", "-1", "x"] {
        let answer = service.ask("GET", &format!("/api/runs/{run}/events?after={after}"), None);
        answer.expect_problem(400, "");
    }
    service
        .ask("GET", "/api/runs?after=x", None)
        .expect_problem(400, "`after`");
}

#[test]
fn pages_of_the_log_join_in_both_directions_and_around_a_line() {
    let place = Place::new();
    let answers = [doing([run("seq 1 40")]), whole_task()];
    place.run_script(&script(answers)).expect(0, &["done"]);
    let service = Service::start(place);
    let log = format!("/api/runs/{}/log", service.place.run_id());
    let whole = service.get(&format!("{log}?after=0"));
    assert_eq!(
        (&whole["is_cut"], &whole["earlier"]),
        (&false.into(), &Value::Null)
    );
    let (mut back, mut before) = (Vec::new(), String::new());
    loop {
        let page = service.get(&format!("{log}?limit=7{before}"));
        assert_eq!(page["is_cut"], !before.is_empty(), "{page}");
        let next = service.get(&format!("{log}?limit=1&after={}", page["next"]));
        assert_eq!(next["lines"].get(0), back.first(), "after {}", page["next"]);
        back.splice(0..0, rows(&page, "lines").iter().cloned());
        match page["earlier"].as_u64() {
            Some(earlier) => before = format!("&before={earlier}"),
            None => break,
        }
    }
    assert_eq!(&back, rows(&whole, "lines"));
    let around = service.get(&format!("{log}?limit=6&at={}", back[20]["id"]));
    assert_eq!(rows(&around, "lines"), &back[18..24]);
    assert_eq!(
        (&around["earlier"], &around["is_cut"]),
        (&back[18]["id"], &true.into())
    );
    let last = back.last().unwrap();
    let around = service.get(&format!("{log}?limit=6&at={}", last["id"]));
    assert_eq!(
        (around["lines"].as_array().unwrap().last(), &around["is_cut"]),
        (Some(last), &false.into())
    );
}

#[test]
fn what_is_not_there_is_a_problem() {
    let service = Service::start(done());
    service
        .ask("GET", "/api/runs/rmissing1", None)
        .expect_problem(404, "rmissing1");
    service
        .ask("GET", "/api/runs/UPPER", None)
        .expect_problem(404, "no such run");
    service
        .ask("GET", "/api/nothing", None)
        .expect_problem(404, "no such path");
    service
        .ask("PUT", "/api/runs", None)
        .expect_problem(405, "no such operation");
    let health = service.raw(&crate::service::request(
        "GET",
        "/api/health",
        &format!("Host: {}\r\n", service.address),
        None,
    ));
    assert_eq!(health.expect(200)["status"], "ok");
}

#[test]
fn tokens_are_listed_without_their_values_and_end_when_revoked() {
    let service = Service::start(done());
    let token = create_token(&service.place, "visitor", "read");
    service
        .place
        .run(&["api-token", "create", "visitor"])
        .expect_refused(&["there is a token `visitor` already"]);
    assert_eq!(
        service.ask_as(&token, "GET", "/api/session", None).expect(200)["name"],
        "visitor"
    );
    let listed = service.place.run(&["api-token", "list", "--json"]);
    assert!(
        listed.stdout.contains("visitor") && !listed.stdout.contains(&token),
        "{listed:?}"
    );
    let store = fs::read(service.place.home().join("ralph.db")).unwrap();
    assert!(!String::from_utf8_lossy(&store).contains(&token));
    service
        .place
        .run(&["api-token", "revoke", "visitor"])
        .expect(0, &["Revoked visitor"]);
    service
        .ask_as(&token, "GET", "/api/session", None)
        .expect_problem(401, "unknown or expired");
    service
        .place
        .run(&["api-token", "revoke", "visitor"])
        .expect_refused(&["there is no token `visitor`"]);
}

pub fn rows<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("{key}: {value}"))
}
