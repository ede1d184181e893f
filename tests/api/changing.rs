//! Runs and run files that are changed over the API, and what runs work with.

use serde_json::{Value, json};

use crate::service::{Service, create_token, done};
use crate::support::ralph::{Held, Live, Place, TASK, doing, eventually, run, script, whole_task};

#[test]
fn an_update_is_made_whole_or_not_at_all() {
    let place = Place::new();
    let held = Held::start(&place);
    let service = Service::start(place);
    let path = format!("/api/runs/{}", service.place.run_id());
    let update = |body: &Value| service.ask("PATCH", &path, Some(body));
    let edited = TASK.replace("# Say hello", "# Say hello twice");
    update(&json!({"task": edited, "profile": "missing"})).expect_problem(422, "no model profile `missing`");
    update(&json!({"task": "# no frontmatter\n"})).expect_problem(422, "is not valid");
    update(&json!({"branch": "main"})).expect_problem(400, "unknown field `branch`");
    assert_eq!(service.get(&path)["interventions"], json!([]));
    let reader = create_token(&service.place, "reader", "read");
    service
        .ask_as(&reader, "PATCH", &path, Some(&json!({"task": edited})))
        .expect_problem(403, "needs the scope `steer`");
    let asked = update(&json!({"task": edited})).expect(202);
    assert_eq!(asked["requests"][0]["what"], "edited task", "{asked}");
    held.let_go();
    held.live.wait().expect(0, &["tester: edited task"]);
    assert_eq!(service.get(&path)["task"], "Say hello twice");
}

#[test]
fn run_files_are_written_by_the_rules_of_the_run() {
    let place = Place::new();
    let held = Held::start(&place);
    let service = Service::start(place);
    let path = format!("/api/runs/{}/file", service.place.run_id());
    let write = |file: &str, text: &str| {
        let body = json!({"path": file, "text": text});
        service.ask("PUT", &path, Some(&body))
    };
    let guardrails = ".ralph/guardrails.md";
    let present = service.get(&format!("{path}?path={guardrails}"))["text"].clone();
    let present = present.as_str().unwrap().to_owned();
    write(guardrails, "another text\n").expect_problem(422, "can only be appended to");
    write(guardrails, &present).expect_problem(422, "can only be appended to");
    for other in [
        ".ralph/activity.log",
        ".ralph/../run.json",
        "run.json",
        "/etc/passwd",
    ] {
        write(other, "x").expect_problem(422, "cannot be written");
    }
    write("ralph_task.md", "# no frontmatter\n").expect_problem(422, "is not valid");
    let asked = write(guardrails, &format!("{present}\nMind the time zones.\n")).expect(202);
    assert_eq!(
        asked["what"], "appended to guardrails.md: Mind the time zones.",
        "{asked}"
    );
    held.let_go();
    held.live.wait().expect(0, &["tester: appended to guardrails.md"]);
    let text = service.get(&format!("{path}?path={guardrails}"))["text"].clone();
    assert!(text.as_str().unwrap().contains("Mind the time zones."), "{text}");
}

#[test]
fn the_sandbox_of_a_run_and_its_ports_are_shown() {
    let place = Place::new();
    let held = Held::start(&place);
    let service = Service::start(place);
    let run = format!("/api/runs/{}", service.place.run_id());
    let sandbox = service.get(&format!("{run}/sandbox"));
    assert_eq!(
        (&sandbox["provider"], &sandbox["is_isolated"]),
        (&"local".into(), &false.into()),
        "{sandbox}"
    );
    assert!(sandbox["memory_bytes"].as_u64().unwrap() > 0, "{sandbox}");
    service
        .ask("GET", &format!("{run}/preview?port=0x"), None)
        .expect_problem(400, "");
    held.let_go();
    held.live.wait().expect(0, &[]);
    service
        .ask("GET", &format!("{run}/preview?port=8080"), None)
        .expect_problem(404, "port 8080");
}

#[test]
fn a_worker_is_listed_with_its_runs_while_it_has_them() {
    let service = Service::start(Place::new());
    assert_eq!(service.get("/api/workers"), json!({"workers": []}));
    let go = service.place.path().join("go");
    let hold = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
    let script = script([doing([run(&hold)]), whole_task()]);
    let body = json!({"task": TASK, "script": script.to_string()});
    let created = service.post("/api/runs", &body).expect(201);
    let worker = Live::start(&mut service.place.ralph(&["worker", "--drain"]));
    let mut workers = Value::Null;
    eventually("the worker has the run", || {
        workers = service.get("/api/workers");
        workers["workers"] != json!([])
    });
    let claim = &workers["workers"][0]["runs"][0];
    assert_eq!((&claim["run"], &claim["attempt"]), (&created["run"], &1.into()));
    assert!(claim["lease_seconds"].as_f64().unwrap() > 0.0, "{workers}");
    let listed = &service.get("/api/runs?queue=running")["runs"][0];
    assert_eq!(listed["worker"], workers["workers"][0]["name"]);
    std::fs::write(&go, "").unwrap();
    worker.wait().expect(0, &[]);
    assert_eq!(service.get("/api/workers"), json!({"workers": []}));
}

#[test]
fn images_are_listed_or_the_missing_engine_is_named() {
    let service = Service::start(done());
    let list = service.get("/api/images");
    if list["engine_problem"].is_null() {
        assert!(list["images"].is_array(), "{list}");
    } else {
        assert!(list["images"].is_null(), "{list}");
        let detail = list["engine_problem"]["detail"].as_str().unwrap();
        assert!(detail.contains("cannot reach a container engine"), "{list}");
    }
}
