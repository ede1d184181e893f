//! Traces: spans reach a real receiver of OTLP, with their parents and times, and without content.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::Value;

use crate::support::ralph::{Place, commit, doing, finish, run, script, whole_task, write};
use crate::support::receiver::{Answer, Receiver, Request};

/// The spans that arrived, by id.
fn spans(receiver: &Receiver) -> BTreeMap<String, Value> {
    let requests = receiver.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.line.starts_with("POST /v1/traces "))
    );
    let bodies = requests.iter().map(Request::json);
    let spans = bodies.flat_map(|body| {
        let scope = body["resourceSpans"][0]["scopeSpans"][0].clone();
        scope["spans"].as_array().unwrap().clone()
    });
    spans.map(|span| (text(&span, "spanId"), span)).collect()
}

fn text(span: &Value, key: &str) -> String {
    span[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key} in {span}"))
        .to_owned()
}

fn nanos(span: &Value, key: &str) -> u128 {
    text(span, key).parse().unwrap()
}

fn attribute(span: &Value, key: &str) -> Value {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|attribute| attribute["key"] == key);
    found.unwrap_or_else(|| panic!("no {key} in {span}"))["value"].clone()
}

/// Fails unless all spans are of one trace, and each is within the time of its parent.
fn check_times(spans: &BTreeMap<String, Value>, trace: &str) {
    for span in spans.values() {
        assert_eq!(text(span, "traceId"), trace);
        assert!(nanos(span, "startTimeUnixNano") <= nanos(span, "endTimeUnixNano"));
        let Some(parent) = span.get("parentSpanId").map(|id| &spans[id.as_str().unwrap()]) else {
            continue;
        };
        // Times of calls and actions are rounded to a millisecond.
        let slack = 2_000_000;
        assert!(nanos(parent, "startTimeUnixNano") <= nanos(span, "startTimeUnixNano") + slack);
        assert!(nanos(parent, "endTimeUnixNano") >= nanos(span, "endTimeUnixNano"));
    }
}

#[test]
fn a_run_is_one_trace_of_iterations_calls_and_actions() {
    let place = Place::new();
    let receiver = Receiver::answering(&[Answer::Status(200)]);
    let wrong = doing([write("a.txt", "hullo\n"), run("echo seen"), commit("Try")]);
    let mut ralph = place.scripted(&script([wrong, whole_task()]), &[]);
    ralph.env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base()).env(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=Bearer%20abc0123456789",
    );
    finish(&mut ralph).expect(0, &["done: "]);

    let spans = spans(&receiver);
    assert_eq!(
        receiver.requests()[0].header("authorization"),
        "Bearer abc0123456789"
    );
    let named = |name: &str| -> Vec<&Value> {
        let is_it = |span: &&Value| text(span, "name").split(' ').next() == Some(name);
        spans.values().filter(is_it).collect()
    };
    let (runs, iterations) = (named("invoke_workflow"), named("invoke_agent"));
    let (calls, actions) = (named("chat"), named("execute_tool"));
    assert_eq!((runs.len(), iterations.len(), calls.len()), (1, 2, 2));
    assert!(actions.len() >= 6, "{actions:?}");
    assert_eq!(spans.len(), 5 + actions.len());

    let trace = text(runs[0], "traceId");
    assert_eq!(trace.len(), 32);
    assert!(runs[0].get("parentSpanId").is_none(), "{:?}", runs[0]);
    assert_eq!(attribute(runs[0], "ralph.run")["stringValue"], place.run_id());
    assert_eq!(attribute(runs[0], "ralph.outcome")["stringValue"], "done");
    check_times(&spans, &trace);
    for (children, parents) in [
        (&iterations, &runs),
        (&calls, &iterations),
        (&actions, &iterations),
    ] {
        for child in children {
            let parent = text(child, "parentSpanId");
            assert!(
                parents.iter().any(|span| text(span, "spanId") == parent),
                "{child}"
            );
        }
    }
    assert_eq!(
        attribute(calls[0], "gen_ai.usage.input_tokens")["intValue"],
        "100"
    );
    assert_eq!(
        attribute(calls[0], "gen_ai.usage.output_tokens")["intValue"],
        "10"
    );
    let all = serde_json::to_string(&spans).unwrap();
    for content in ["hullo", "echo", "a.txt", "Say hello", "grep", "some work"] {
        assert!(!all.contains(content), "{content} is in {all}");
    }
}

#[test]
fn a_receiver_of_traces_that_hangs_costs_spans_and_not_the_run() {
    let place = Place::new();
    let receiver = Receiver::answering(&[Answer::Hang]);
    let mut ralph = place.scripted(&script([whole_task()]), &[]);
    ralph.env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.base());
    finish(&mut ralph).expect(0, &["done: ", "spans of the trace are lost"]);
}

/// The variables may be set for other programs.
#[rstest]
#[case::an_address(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")], "`OTEL_EXPORTER_OTLP_ENDPOINT`")]
#[case::headers(
    &[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no pairs"),
    ],
    "`OTEL_EXPORTER_OTLP_HEADERS`"
)]
fn what_cannot_send_traces_is_a_warning(#[case] variables: &[(&str, &str)], #[case] named: &str) {
    let place = Place::new();
    let mut ralph = place.scripted(&script([whole_task()]), &[]);
    ralph.envs(variables.iter().copied());
    let ended = finish(&mut ralph);
    ended.expect(0, &["done: "]);
    let warnings: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.contains("no traces are sent"))
        .collect();
    assert!(
        matches!(warnings[..], [only] if only.contains(named)),
        "{ended:?}"
    );
}
