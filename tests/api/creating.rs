//! Runs that are created and queued over the API.

use rstest::rstest;
use serde_json::{Value, json};

use crate::service::{Answer, Held, Service, create_token, request, serve};
use crate::support::ralph::{Place, TASK, script, whole_task};

fn new_run() -> Value {
    json!({"task": TASK, "script": script([whole_task()]).to_string()})
}

fn create(service: &Service, key: &str, body: &Value) -> Answer {
    let headers = format!(
        "Host: {}\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n",
        service.address, service.token
    );
    service.raw(&request("POST", "/api/runs", &headers, Some(body)))
}

#[test]
fn a_created_run_waits_in_the_queue() {
    let service = Service::start(Place::new());
    let created = service.post("/api/runs", &new_run()).expect(201);
    let run = created["run"].as_str().unwrap();
    assert_eq!(service.place.run_id(), run);
    let status = service.get(&format!("/api/runs/{run}"));
    assert_eq!(
        (&status["state"], &status["task"]),
        (&"interrupted".into(), &"Say hello".into())
    );
    let again = service
        .post(&format!("/api/runs/{run}/resume"), &json!({}))
        .expect(202);
    assert_eq!(again, created);
    service.place.run(&["resume", run]).expect(0, &["done: "]);
}

#[test]
fn the_same_key_creates_one_run() {
    let service = Service::start(Place::new());
    let first = create(&service, "monday", &new_run()).expect(201);
    assert_eq!(create(&service, "monday", &new_run()).expect(201), first);
    assert_eq!(service.place.runs().len(), 1);
    let other = json!({"task": TASK.replace("Say hello", "Say it")});
    create(&service, "monday", &other).expect_problem(409, "another request");
    // What was refused can be corrected with the same key.
    let problem =
        create(&service, "tuesday", &json!({"task": "# nothing\n"})).expect_problem(422, "not valid");
    assert_eq!(problem["findings"][0]["is_error"], true, "{problem}");
    assert_ne!(create(&service, "tuesday", &new_run()).expect(201), first);
    assert_eq!(service.place.runs().len(), 2);
}

#[test]
fn only_an_admin_creates_runs() {
    let service = Service::start(Place::new());
    let steer = create_token(&service.place, "steerer", "steer");
    service
        .ask_as(&steer, "POST", "/api/runs", Some(&new_run()))
        .expect_problem(403, "needs the scope `admin`");
    assert!(service.place.runs().is_empty());
}

#[rstest]
#[case::by_the_configuration(json!({}))]
#[case::by_a_setting(json!({"sandbox.enabled": "false"}))]
fn other_hosts_create_no_run_without_isolation(#[case] settings: Value) {
    let mut service = Service::start(Place::new());
    let (mut child, address) = serve(&service.place, "0.0.0.0:0");
    service.address = address.replace("0.0.0.0", "127.0.0.1");
    let mut body = new_run();
    body["settings"] = settings;
    let answer = service.post("/api/runs", &body);
    let _ = child.kill();
    let _ = child.wait();
    answer.expect_problem(403, "without isolation");
    assert!(service.place.runs().is_empty());
}

#[test]
fn a_live_run_is_not_queued_again() {
    let place = Place::new();
    let held = Held::start(&place);
    let service = Service::start(place);
    let resume = format!("/api/runs/{}/resume", service.place.run_id());
    service
        .post(&resume, &json!({}))
        .expect_problem(409, "is being worked on");
    held.let_go();
    held.live.wait().expect(0, &[]);
}

#[rstest]
#[case::a_program(
    "notify",
    "[{kind = \"command\", command = [\"touch\", \"/tmp/x\"], events = [\"done\"]}]"
)]
#[case::a_directory("sandbox.mounts", "[{source = \"/etc\", target = \"/etc-of-host\"}]")]
#[case::an_address_for_keys("model_endpoint.base_url", "http://203.0.113.1")]
#[case::a_forge("forge.github.url", "http://203.0.113.1")]
fn settings_of_the_host_are_refused(#[case] key: &str, #[case] value: &str) {
    let service = Service::start(Place::new());
    let mut body = new_run();
    body["settings"] = json!({ key: value });
    service
        .post("/api/runs", &body)
        .expect_problem(403, "cannot be chosen over the API");
    assert!(service.place.runs().is_empty());
}
