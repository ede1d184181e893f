//! What a run used and got for it, its pull request, and the settings of the service.

use serde_json::{Value, json};

use crate::reading::rows;
use crate::service::{Service, create_token, done, user_file};
use crate::support::ralph::{Place, TASK, commit, doing, run, script, whole_task, write};

#[test]
fn budgets_and_the_cost_of_each_checkbox_are_shown() {
    let service = Service::start(done());
    let usage = service.get(&format!("/api/runs/{}/usage", service.place.run_id()));
    let budget = |name: &str| -> &Value {
        let mut found = rows(&usage, "budgets").iter();
        found.find(|one| one["name"] == name).unwrap_or(&Value::Null)
    };
    assert_eq!(
        budget("max_iterations"),
        &json!({"name": "max_iterations", "unit": "iterations", "used": 1.0, "limit": 6.0})
    );
    let cost = budget("max_cost_usd_estimate");
    assert_eq!(
        (&cost["used"], &cost["limit"]),
        (&0.001.into(), &10.0.into()),
        "{usage}"
    );
    let tokens = budget("max_tokens_total");
    assert_eq!(
        (&tokens["used"], &tokens["limit"]),
        (&110.0.into(), &1_000_000.0.into())
    );
    assert_eq!(
        rows(&usage, "checkboxes"),
        &[
            json!({"checkbox": "M1.1", "iteration": 1, "cost_usd": 0.0005}),
            json!({"checkbox": "M1.2", "iteration": 1, "cost_usd": 0.0005}),
        ]
    );
}

#[test]
fn the_pull_request_is_shown_as_it_was_opened() {
    let service = Service::start(done());
    let request = service.get(&format!("/api/runs/{}/pull-request", service.place.run_id()));
    assert_eq!(
        (&request["is_opened"], &request["is_draft"]),
        (&true.into(), &false.into()),
        "{request}"
    );
    assert!(
        request["title"].as_str().unwrap().contains("Say hello"),
        "{request}"
    );
    let body = request["body"].as_str().unwrap();
    let file = std::fs::read_to_string(request["location"].as_str().unwrap()).unwrap();
    assert!(body.contains("M1.1") && file.contains(body.trim()), "{body}");
    assert_eq!(request["failed_checks"], json!([]));
}

#[test]
fn a_run_without_a_pull_request_has_none() {
    let service = Service::start(Place::new());
    let new = json!({"task": TASK, "script": script([whole_task()]).to_string()});
    service.post("/api/runs", &new).expect(201);
    let request = service.get(&format!("/api/runs/{}/pull-request", service.place.run_id()));
    assert_eq!(
        (&request["location"], &request["is_opened"]),
        (&Value::Null, &false.into())
    );
}

#[test]
fn settings_have_their_places_and_no_secrets() {
    let place = done();
    user_file(&place, "[dashboard]\nmode = \"GUIDED\"\n");
    place.write(".env", "ANTHROPIC_API_KEY=sk-test-0123456789\n");
    let service = Service::start(place);
    let answer = service.ask("GET", "/api/settings", None);
    assert!(!answer.body.contains("sk-test-0123456789"), "{}", answer.body);
    let settings = answer.expect(200);
    let setting = |key: &str| rows(&settings, "settings").iter().find(|one| one["key"] == key);
    let mode = setting("dashboard.mode").unwrap();
    assert_eq!(
        (&mode["value"], &mode["layer"]),
        (&"GUIDED".into(), &"user".into())
    );
    assert!(mode["source"].as_str().unwrap().contains("config.toml"), "{mode}");
    assert_eq!(setting("env.ANTHROPIC_API_KEY").unwrap()["value"], "***");
    assert_eq!(setting("budget.max_iterations").unwrap()["layer"], "default");
    let steer = create_token(&service.place, "steerer", "steer");
    service
        .ask_as(&steer, "GET", "/api/settings", None)
        .expect_problem(403, "needs the scope `admin`");
}

#[test]
fn changes_since_an_iteration_leave_out_what_was_there() {
    let place = Place::new();
    let first = doing([write("early.txt", "early\n"), commit("Add the early file")]);
    place
        .run_script(&script([first, whole_task()]))
        .expect(0, &["done"]);
    let service = Service::start(place);
    let diff = |query: &str| {
        let answer = service.get(&format!("/api/runs/{}/diff{query}", service.place.run_id()));
        answer["diff"].as_str().unwrap().to_owned()
    };
    assert!(diff("").contains("b/early.txt") && diff("").contains("b/a.txt"));
    assert!(!diff("?since=1").contains("b/early.txt") && diff("?since=1").contains("b/a.txt"));
    assert_eq!(diff("?since=1"), diff("?iteration=2"));
    assert_eq!(diff("?since=2"), "");
    let path = format!("/api/runs/{}/diff?since=7", service.place.run_id());
    service
        .ask("GET", &path, None)
        .expect_problem(404, "has no iteration 7");
}

#[test]
fn colours_of_programs_are_names_and_other_escapes_stay_text() {
    let place = Place::new();
    let prints = run(r"printf '\033[1;31mred\033[0m plain\033[2Jcleared\n'");
    place
        .run_script(&script([doing([prints]), whole_task()]))
        .expect(0, &["done"]);
    let service = Service::start(place);
    let log = service.get(&format!(
        "/api/runs/{}/log?search=red%20plain",
        service.place.run_id()
    ));
    let line = &rows(&log, "lines")[0];
    assert_eq!(line["text"], "  | red plain\\u001b[2Jcleared");
    assert_eq!(
        line["spans"],
        json!([
            {"text": "  | ", "looks": []},
            {"text": "red", "looks": ["bold", "red"]},
            {"text": " plain\\u001b[2Jcleared", "looks": []},
        ])
    );
}
