//! Runs that are created and queued over the API.

use std::io::Write;

use rstest::rstest;
use serde_json::{Value, json};

use crate::service::{Answer, Service, create_token, request, serve, user_file};
use crate::support::ralph::{Held, Place, TASK, eventually, script, whole_task};

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
        (&status["queue"], &status["task"]),
        (&"queued".into(), &"Say hello".into())
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

/// What happens in the middle of a creation.
#[rstest]
#[case::client_leaves(|_: &mut Service| {})]
#[case::service_is_killed(Service::restart)]
fn a_creation_that_is_cut_off_is_finished_once_by_its_repetition(#[case] interrupt: fn(&mut Service)) {
    let mut service = Service::start(Place::new());
    // At random points of it.
    for round in 0..8 {
        let key = format!("round-{round}");
        let headers = format!(
            "Host: {}\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n",
            service.address, service.token
        );
        let text = request("POST", "/api/runs", &headers, Some(&new_run()));
        let mut stream = std::net::TcpStream::connect(&service.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(fastrand::u64(5..250)));
        interrupt(&mut service);
        drop(stream);
        let mut answer = create(&service, &key, &new_run());
        eventually("the creation is finished", || {
            answer = create(&service, &key, &new_run());
            answer.status != 409
        });
        let first = answer.expect(201);
        assert_eq!(create(&service, &key, &new_run()).expect(201), first);
        assert_eq!(service.place.runs().len(), round + 1, "{first}");
        let list = service.get("/api/runs?queue=queued");
        assert_eq!(crate::reading::rows(&list, "runs").len(), round + 1);
    }
}

#[test]
fn a_queued_run_is_stopped_or_removed_before_a_worker_has_it() {
    let service = Service::start(Place::new());
    let create = || service.post("/api/runs", &new_run()).expect(201)["run"].clone();
    let (stopped, removed) = (create(), create());
    let (stopped, removed) = (stopped.as_str().unwrap(), removed.as_str().unwrap());
    let stop = service
        .post(&format!("/api/runs/{stopped}/stop"), &json!({}))
        .expect(202);
    assert_eq!((&stop["state"], &stop["by"]), (&"done".into(), &"tester".into()));
    service
        .ask("DELETE", &format!("/api/runs/{removed}"), None)
        .expect(204);
    let list = service.get("/api/runs");
    let rows = crate::reading::rows(&list, "runs");
    assert_eq!(rows.len(), 1, "{list}");
    assert_eq!(rows[0]["queue"], "finished", "{list}");
    // No worker finds work.
    service.place.run(&["worker", "--drain"]).expect(0, &[]);
    let status = service.get(&format!("/api/runs/{stopped}"));
    assert_eq!(status["iterations"], 0, "{status}");
    // It can be queued again.
    service
        .post(&format!("/api/runs/{stopped}/resume"), &json!({}))
        .expect(202);
    service.place.run(&["worker", "--drain"]).expect(0, &[]);
    assert_eq!(service.get(&format!("/api/runs/{stopped}"))["state"], "done");
}

#[rstest]
#[case::with_a_proxy_in_the_configuration("[api]\nallowed_hosts = [\"ralph.example\"]\n", "", 403)]
#[case::with_an_origin_in_the_configuration("[api]\nallowed_origins = [\"https://a.example\"]\n", "", 403)]
#[case::passed_on_by_a_proxy("", "X-Forwarded-For: 203.0.113.1\r\n", 403)]
#[case::passed_on_by_a_named_proxy("", "Via: 1.1 proxy\r\n", 403)]
#[case::allowed(
    "[api]\nallowed_hosts = [\"ralph.example\"]\ndangerously_allow_local = true\n",
    "X-Forwarded-For: 203.0.113.1\r\n",
    201
)]
fn a_proxy_creates_no_run_without_isolation(
    #[case] setting: &str,
    #[case] header: &str,
    #[case] status: u16,
) {
    let place = Place::new();
    user_file(&place, setting);
    let service = Service::start(place);
    let headers = format!(
        "Host: {}\r\nAuthorization: Bearer {}\r\n{header}",
        service.address, service.token
    );
    let answer = service.raw(&request("POST", "/api/runs", &headers, Some(&new_run())));
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(service.place.runs().is_empty(), status == 403);
}
