//! Metrics: a real Prometheus scrapes them, and the dashboard asks for what exists.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ralph::event::{Event, EventSink};
use ralph::metrics::{FAMILIES, FamilyKind, Metrics};
use serde_json::Value;

use crate::need;
use crate::support::ralph::{Place, commit, doing, eventually, finish, script, whole_task, write};
use crate::support::skip;

/// Metrics after a whole run, from the events that it printed.
fn measured() -> Metrics {
    let place = Place::new();
    let wrong = doing([write("a.txt", "hullo\n"), commit("Try")]);
    let ended = finish(&mut place.scripted(&script([wrong, whole_task()]), &["--json"]));
    ended.expect(0, &[]);
    let metrics = Metrics::default();
    for value in ended.json_lines() {
        let event: Event = serde_json::from_value(value).unwrap();
        metrics.emit(&event);
    }
    metrics.set_states("ralph_queue_depth", [("queued", 3), ("claimed", 1)]);
    metrics
}

/// Serves the metrics on loopback. Returns the address.
fn serve(metrics: Metrics) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let body = metrics.render();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// Ends the process when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn prometheus(program: &Path, dir: &Path, target: &str) -> (Server, String) {
    let config = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: ralph\n    static_configs:\n      - targets: ['{target}']\n"
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

#[test]
fn a_real_prometheus_scrapes_the_metrics_of_a_run() {
    let program = need!(skip::program("prometheus"));
    let dir = tempfile::tempdir().unwrap();
    let (_server, address) = prometheus(&program, dir.path(), &serve(measured()));
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
    let iterations = query(&address, "sum(ralph_iterations_total)").unwrap();
    assert_eq!(iterations[0]["value"][1], "2");
    let samples = query(&address, "scrape_samples_scraped").unwrap();
    let samples: u32 = samples[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!((20..=300).contains(&samples), "{samples} series");
}

#[test]
fn promtool_accepts_the_text() {
    let program = need!(skip::program("promtool"));
    let mut process = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = measured().render();
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ended = process.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.is_empty(), "{said}\n{text}");
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist_and_for_all_of_them() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked: Vec<String> = targets
        .flat_map(|target| {
            let expression = target["expr"].as_str().unwrap().to_owned();
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words: Vec<String> = expression.split(|c| !is_part(c)).map(str::to_owned).collect();
            words.into_iter().filter(|word| word.starts_with("ralph_"))
        })
        .collect();
    let exists: Vec<String> = FAMILIES
        .iter()
        .map(|family| match family.kind {
            FamilyKind::Histogram(_) => format!("{}_bucket", family.name),
            FamilyKind::Counter | FamilyKind::Gauge => family.name.to_owned(),
        })
        .collect();
    let unknown: Vec<&String> = asked.iter().filter(|name| !exists.contains(name)).collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
    let missing: Vec<&String> = exists.iter().filter(|name| !asked.contains(name)).collect();
    assert!(missing.is_empty(), "on no panel: {missing:?}");
}
