//! `/metrics`: a real Prometheus scrapes it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::need;
use crate::service::{Service, create_token, request};
use crate::support::ralph::{Place, TASK, commit, doing, eventually, script, whole_task, write};
use crate::support::skip;

/// Ends the process when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Prometheus that scrapes a service with this token.
fn prometheus(program: &Path, dir: &Path, target: &str, token: &str) -> (Server, String) {
    let config = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: ralph\n    authorization:\n      credentials: {token}\n    static_configs:\n      - targets: ['{target}']\n"
    );
    fs::write(dir.join("prometheus.yml"), config).unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let address = format!("127.0.0.1:{port}");
    let process = Command::new(program)
        .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(fs::File::create(dir.join("log")).unwrap())
        .spawn()
        .unwrap();
    (Server(process), address)
}

/// The values that a Prometheus has for an expression; nothing while it does not answer.
fn query(address: &str, expression: &str) -> Option<Vec<Value>> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!(
        "GET /api/v1/query?query={expression} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let json = &answer[answer.find('{')?..=answer.rfind('}')?];
    let value: Value = serde_json::from_str(json).ok()?;
    value["data"]["result"].as_array().cloned()
}

/// A service that has worked on a run of two iterations.
fn worked() -> Service {
    let service = Service::working(Place::new(), &["--workers", "1"]);
    let wrong = doing([write("a.txt", "hullo\n"), commit("Try")]);
    let model = script([wrong, whole_task()]).to_string();
    let body = json!({"task": TASK, "script": model});
    let created = service.post("/api/runs", &body).expect(201);
    let path = format!("/api/runs/{}", created["run"].as_str().unwrap());
    eventually("the run is done", || service.get(&path)["state"] == "done");
    service
}

#[test]
fn a_real_prometheus_scrapes_the_service() {
    let program = need!(skip::program("prometheus"));
    let service = worked();
    let token = create_token(&service.place, "prometheus", "read");
    let dir = tempfile::tempdir().unwrap();
    let (_server, address) = prometheus(&program, dir.path(), &service.address, &token);
    let mut found = Vec::new();
    eventually("Prometheus has the outcome of the run", || {
        found = query(&address, "ralph_run_outcomes_total").unwrap_or_default();
        !found.is_empty()
    });
    assert_eq!(found.len(), 1, "{found:?}");
    let labels = &found[0]["metric"];
    assert_eq!(labels["outcome"], "done");
    assert_eq!(labels["agent"], "actions");
    assert_eq!(labels["provider"], "local");
    let number = |expression: &str| {
        let found = query(&address, expression).unwrap();
        found[0]["value"][1].as_str().unwrap().to_owned()
    };
    assert_eq!(number("sum(ralph_iterations_total)"), "2");
    eventually("the queue has the end of the run", || {
        query(&address, "ralph_queue_depth{state=\"finished\"}").is_some_and(|found| found.len() == 1)
    });
    assert_eq!(number("ralph_runs{state=\"done\"}"), "1");
    let samples: u32 = number("scrape_samples_scraped").parse().unwrap();
    assert!((20..=300).contains(&samples), "{samples} series");
}

#[test]
fn metrics_need_a_token_and_name_no_run() {
    let service = worked();
    let host = format!("Host: {}\r\n", service.address);
    service
        .raw(&request("GET", "/metrics", &host, None))
        .expect_problem(401, "the request has no token");
    let answer = service.ask("GET", "/metrics", None);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.headers.contains("content-type: text/plain; version=0.0.4"),
        "{answer:?}"
    );
    assert!(answer.body.contains("ralph_iterations_total{"), "{answer:?}");
    assert!(!answer.body.contains(&service.place.run_id()), "{answer:?}");
}
