//! What `dashboard.mode` lets people ask of runs. The service refuses the rest, whichever page or program asks.

use serde_json::{Value, json};

use crate::service::{Answer, Service, create_token, user_file};
use crate::support::ralph::{Held, Place};

/// A service in a mode, over a run that is held in its first iteration.
fn held_in(mode: &str) -> (Service, Held) {
    let place = Place::new();
    let lint = "[dashboard.commands]\nlint = \"echo checked-by-lint; cat draft.txt; exit 3\"\n";
    user_file(&place, &format!("[dashboard]\nmode = \"{mode}\"\n{lint}"));
    let held = Held::start(&place);
    (Service::start(place), held)
}

fn post(service: &Service, operation: &str, body: &Value) -> Answer {
    service.post(&format!("/api/runs/{}/{operation}", service.place.run_id()), body)
}

fn append_note(service: &Service) -> Answer {
    let path = format!("/api/runs/{}/file", service.place.run_id());
    let text = format!("{}more\n", service.place.noted("notes.md"));
    service.ask(
        "PUT",
        &path,
        Some(&json!({"path": ".ralph/notes.md", "text": text})),
    )
}

fn sign() -> Value {
    json!({"name": "small steps", "trigger": "a large diff", "instruction": "split it"})
}

#[test]
fn autonomous_runs_take_signs_and_orders_but_no_notes_and_no_commands() {
    let (service, held) = held_in("AUTONOMOUS");
    assert_eq!(service.get("/api/session")["mode"], "AUTONOMOUS");
    let note = json!({"text": "Mind the tests."});
    post(&service, "notes", &note).expect_problem(403, "needs the mode `GUIDED`");
    append_note(&service).expect_problem(403, "needs the mode `GUIDED`");
    post(&service, "commands", &json!({"name": "lint"})).expect_problem(403, "needs the mode `DEBUG`");
    post(&service, "signs", &sign()).expect(202);
    post(&service, "pause", &json!({})).expect(202);
    held.let_go();
    held.live.wait().expect(3, &["paused"]);
    assert!(!service.place.noted("notes.md").contains("Mind the tests."));
}

#[test]
fn guided_runs_take_notes_that_say_what_they_are_about() {
    let (service, held) = held_in("GUIDED");
    let note = |kind: &str, about: &str| json!({"text": "Mind the tests.", "kind": kind, "about": about});
    post(&service, "notes", &note("correction", "M1.1")).expect(202);
    post(&service, "notes", &json!({"text": "Plain."})).expect(202);
    append_note(&service).expect(202);
    post(&service, "notes", &note("correction", "M9.9")).expect_problem(422, "has no checkbox `M9.9`");
    post(&service, "notes", &note("rumour", "M1.1")).expect_problem(400, "unknown variant `rumour`");
    post(&service, "commands", &json!({"name": "lint"})).expect_problem(403, "needs the mode `DEBUG`");
    held.let_go();
    held.live
        .wait()
        .expect(0, &["tester: note: Correction about M1.1"]);
    let notes = service.place.noted("notes.md");
    for said in [
        "Note from a person: Correction about M1.1: Mind the tests.",
        "Note from a person: Plain.",
        "\nmore\n",
    ] {
        assert!(notes.contains(said), "{notes}");
    }
}

#[test]
fn debugged_runs_run_commands_of_the_list_in_their_sandbox_and_no_others() {
    let (service, held) = held_in("DEBUG");
    let path = format!("/api/runs/{}/commands", service.place.run_id());
    let listed = service.get(&path);
    let names: Vec<&Value> = listed["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| &command["name"])
        .collect();
    assert_eq!(names, ["test_command", "lint"]);
    for other in ["ls", "lint; ls", "../lint", ""] {
        post(&service, "commands", &json!({"name": other})).expect_problem(422, "there is no command");
    }
    let line = json!({"name": "lint", "line": "ls"});
    post(&service, "commands", &line).expect_problem(400, "unknown field `line`");
    let reader = create_token(&service.place, "reader", "read");
    service
        .ask_as(&reader, "POST", &path, Some(&json!({"name": "lint"})))
        .expect_problem(403, "needs the scope `steer`");
    let asked = post(&service, "commands", &json!({"name": "lint"})).expect(202);
    assert!(
        asked["what"].as_str().unwrap().starts_with("run lint: "),
        "{asked}"
    );
    held.let_go();
    // What the command finds is shown, and fails nothing.
    held.live
        .wait()
        .expect(0, &["checked-by-lint", "tester: run lint"]);
    let output = service.place.noted("commands/lint.txt");
    // It ran in the clone, where the first iteration left its draft.
    assert!(output.contains("checked-by-lint\ndraft\n"), "{output}");
    let shown = service.get(&format!(
        "/api/runs/{}/file?path=.ralph/commands/lint.txt",
        service.place.run_id()
    ));
    assert_eq!(shown["text"], output);
}

#[test]
fn a_project_cannot_choose_the_mode() {
    let place = Place::new();
    place.write("ralph.toml", "[dashboard]\nmode = \"DEBUG\"\n");
    place
        .run(&["config", "show"])
        .expect_refused(&["`dashboard.mode`", "a project or a task cannot set"]);
    place.write("ralph.toml", "[dashboard.commands]\n\"../lint\" = \"true\"\n");
    place
        .run(&["config", "show"])
        .expect_refused(&["the name of a command has 1 to 40"]);
}
