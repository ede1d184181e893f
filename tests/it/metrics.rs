//! Metrics: their text is valid, and the dashboard asks for what exists.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use ralph::event::Event;
use ralph::metrics::{FAMILIES, FamilyKind, Metrics};
use serde_json::Value;

use crate::need;
use crate::support::ralph::{Place, commit, doing, finish, script, whole_task, write};
use crate::support::skip;

/// Metrics after a whole run, from the events that it printed.
fn measured() -> Metrics {
    let place = Place::new();
    let wrong = doing([write("a.txt", "hullo\n"), commit("Try")]);
    let ended = finish(&mut place.scripted(&script([wrong, whole_task()]), &["--json"]));
    ended.expect(0, &[]);
    let metrics = Metrics::default();
    let sink = metrics.sink();
    for value in ended.json_lines() {
        let event: Event = serde_json::from_value(value).unwrap();
        sink.emit(&event);
    }
    metrics.set_states("ralph_queue_depth", [("queued", 3), ("claimed", 1)]);
    metrics
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
