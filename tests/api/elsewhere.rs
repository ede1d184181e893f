//! Runs that a worker on another host has, in a Postgres that both use. The other host has a `RALPH_HOME` of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ralph::RunId;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::need;
use crate::service::{Service, user_file};
use crate::sockets::Client;
use crate::support::postgres::PostgresServer;
use crate::support::ralph::{Live, Place, TASK, eventually, finish};
use crate::working::held;

/// A place whose processes use a new database of this server.
async fn shared_place(server: &PostgresServer) -> Place {
    let name = RunId::random().to_string();
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let create = format!("CREATE DATABASE {name}");
    sqlx::raw_sql(&create).execute(&mut connection).await.unwrap();
    let place = Place::new();
    place.write(".env", &format!("RALPH_DB_URL={}\n", server.url(&name)));
    place
}

/// `ralph` on another host.
fn elsewhere(place: &Place, args: &[&str]) -> Command {
    let mut command = place.ralph(args);
    command.env("RALPH_HOME", place.path().join("elsewhere"));
    command
}

/// Submits a run on the other host, which a worker there holds in its first iteration. Returns its id and the worker.
fn held_elsewhere(place: &Place) -> (String, Live) {
    let script = place.path().join("script.json");
    fs::write(&script, held(place).to_string()).unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let label = format!("host={}", host.trim());
    let submit = ["submit", "--script", script.to_str().unwrap(), "--label", &label];
    let ended = finish(&mut elsewhere(place, &submit));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let worker = Live::start(&mut elsewhere(place, &["worker", "--once"]));
    let started = place.path().join("started");
    eventually("the run is at work", || started.exists());
    (ended.stdout.trim().to_owned(), worker)
}

fn events_file(place: &Place, run: &str) -> PathBuf {
    let runs = place.path().join("elsewhere/runs");
    runs.join(run).join("events.jsonl")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_a_run_on_another_host_reaches_it() {
    let server = need!(PostgresServer::shared());
    let place = shared_place(&server).await;
    user_file(&place, "[dashboard]\nmode = \"GUIDED\"\n");
    let service = Service::start(place);
    let (run, worker) = held_elsewhere(&service.place);
    let path = |operation: &str| format!("/api/runs/{run}/{operation}");
    let asked = service
        .post(&path("notes"), &json!({"text": "blue, please"}))
        .expect(202);
    assert_eq!(
        (&asked["state"], &asked["by"]),
        (&"pending".into(), &"tester".into())
    );
    service
        .post(&path("notes"), &json!({"text": " "}))
        .expect_problem(422, "the note is empty");
    let inbox = service
        .place
        .path()
        .join("elsewhere/runs")
        .join(&run)
        .join("control");
    eventually("the note is in the inbox of the run", || {
        let files = fs::read_dir(&inbox).into_iter().flatten();
        let mut texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default());
        texts.any(|text| text.contains("blue, please"))
    });
    service.post(&path("stop"), &json!({})).expect(202);
    worker.wait().expect(0, &["stopped"]);
    service.post(&path("stop"), &json!({})).expect_problem(404, &run);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_another_host_is_shown_with_its_events() {
    let server = need!(PostgresServer::shared());
    let service = Service::start(shared_place(&server).await);
    let (run, worker) = held_elsewhere(&service.place);
    let path = format!("/api/runs/{run}");
    eventually("the run is in the list", || {
        service.get("/api/runs")["runs"][0]["state"] == "running"
    });
    assert_eq!(service.get(&path)["state"], "running");
    let mut client = Client::connect(&service).await;
    client.subscribe(&run, Some(0)).await;
    fs::write(service.place.path().join("go"), "").unwrap();
    let mut events: Vec<Value> = Vec::new();
    while events
        .last()
        .is_none_or(|event| event["event"]["event"] != "run_ended")
    {
        events.push(client.receive().await.unwrap());
    }
    tokio::task::spawn_blocking(move || worker.wait().expect(0, &["done"]).code)
        .await
        .unwrap();
    let log = fs::read_to_string(events_file(&service.place, &run)).unwrap();
    let written: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sent = |events: &[Value]| {
        events
            .iter()
            .map(|event| event["event"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(&events), written[..events.len()], "no gap and no double");
    let listed = service.get(&format!("{path}/events"));
    assert_eq!(listed["events"].as_array().unwrap()[..events.len()], events);
    let log = service.get(&format!("{path}/log"));
    let mut kinds = log["lines"].as_array().unwrap().iter().map(|line| &line["kind"]);
    assert!(kinds.any(|kind| kind == "run_ended"), "{log}");
    eventually("the end is in the index", || {
        service.get(&path)["state"] == "done"
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_the_directory_of_a_run_is_refused_while_another_host_has_it() {
    let server = need!(PostgresServer::shared());
    let service = Service::start(shared_place(&server).await);
    let body = json!({"task": TASK, "script": held(&service.place).to_string()});
    let run = service.post("/api/runs", &body).expect(201)["run"].clone();
    let run = run.as_str().unwrap();
    let worker = Live::start(&mut elsewhere(&service.place, &["worker", "--once"]));
    let started = service.place.path().join("started");
    eventually("the run is at work", || started.exists());
    let status = finish(&mut service.place.ralph(&["status", run]));
    status.expect(0, &["next: a worker has run"]);
    for (operation, body) in [
        ("retry", json!({})),
        ("diagnosis", json!({})),
        ("resume", json!({})),
    ] {
        service
            .post(&format!("/api/runs/{run}/{operation}"), &body)
            .expect_problem(409, "on another host");
    }
    eventually("its state is that of the other host", || {
        service.get(&format!("/api/runs/{run}"))["state"] == "running"
    });
    service
        .post(&format!("/api/runs/{run}/stop"), &json!({}))
        .expect(202);
    worker.wait().expect(0, &["stopped"]);
}
