//! The WebSocket with the events of runs.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::service::{Service, create_token, done};
use crate::support::ralph::{Held, Place, TIMEOUT};

pub struct Client(WebSocketStream<TcpStream>);

impl Client {
    pub async fn connect(service: &Service) -> Self {
        Self::connect_as(service, &service.token).await
    }

    async fn connect_as(service: &Service, token: &str) -> Self {
        Self::connect_with(service, &[("authorization", format!("Bearer {token}"))]).await
    }

    /// Connects with these header fields.
    pub async fn connect_with(service: &Service, headers: &[(&'static str, String)]) -> Self {
        let mut request = format!("ws://{}/api/events", service.address)
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(&service.address).await.unwrap();
        let (socket, _) = client_async(request, stream).await.unwrap();
        Self(socket)
    }

    pub async fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// The next message that is not a ping; `None` when the service closed the connection.
    pub async fn receive(&mut self) -> Option<Value> {
        loop {
            let message = timeout(TIMEOUT, self.0.next()).await.unwrap();
            match message {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return None,
            }
        }
    }

    /// Subscribes, and returns the id after which events come.
    pub async fn subscribe(&mut self, run: &str, after: Option<u64>) -> u64 {
        self.say(&json!({"subscribe": run, "after": after})).await;
        let reply = self.receive().await.unwrap();
        assert_eq!(reply["subscribed"], run, "{reply}");
        reply["after"].as_u64().unwrap()
    }

    /// Events until the one with this id.
    async fn until(&mut self, last: u64) -> Vec<Value> {
        let mut events = Vec::new();
        while events
            .last()
            .is_none_or(|event: &Value| event["id"].as_u64().unwrap() < last)
        {
            events.push(self.receive().await.unwrap());
        }
        events
    }
}

fn length(log: &Path) -> u64 {
    fs::metadata(log).unwrap().len()
}

fn append(log: &Path, from: usize, to: usize, padding: usize) {
    let mut file = OpenOptions::new().append(true).open(log).unwrap();
    let padding = "x".repeat(padding);
    for number in from..to {
        writeln!(
            file,
            "{}",
            json!({"event": "output", "number": number, "text": padding})
        )
        .unwrap();
    }
}

fn numbers(events: &[Value]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| event["event"]["number"].as_u64())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_run_is_followed_to_its_end() {
    let place = Place::new();
    let held = Held::start(&place);
    let service = Service::start(place);
    let run = service.place.run_id();
    let (mut early, mut late) = (Client::connect(&service).await, Client::connect(&service).await);
    early.subscribe(&run, Some(0)).await;
    let after = late.subscribe(&run, None).await;
    held.let_go();
    tokio::task::spawn_blocking(move || held.live.wait().expect(0, &[]).code)
        .await
        .unwrap();
    let log = fs::read_to_string(service.place.run_dir().join("events.jsonl")).unwrap();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let end = log.len() as u64;
    let events = |seen: &[Value]| -> Vec<Value> { seen.iter().map(|event| event["event"].clone()).collect() };
    let all = early.until(end).await;
    assert_eq!(events(&all), lines);
    let newer = late.until(end).await;
    let expected: Vec<&Value> = all
        .iter()
        .filter(|event| event["id"].as_u64().unwrap() > after)
        .collect();
    assert_eq!(newer.iter().collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_resumes_after_its_last_event_across_restarts_of_the_service() {
    let mut service = Service::start(done());
    let (run, log) = (
        service.place.run_id(),
        service.place.run_dir().join("events.jsonl"),
    );
    let mut after = length(&log);
    let mut seen = Vec::new();
    for round in 0..5 {
        let mut client = Client::connect(&service).await;
        client.subscribe(&run, Some(after)).await;
        append(&log, round * 1000, round * 1000 + 500, 10);
        let writer = {
            let log = log.clone();
            tokio::task::spawn_blocking(move || append(&log, round * 1000 + 500, (round + 1) * 1000, 10))
        };
        // The connection is lost at some point in the middle.
        for _ in 0..300 + round * 97 {
            let event = client.receive().await.unwrap();
            after = event["id"].as_u64().unwrap();
            seen.push(event);
        }
        writer.await.unwrap();
        drop(client);
        service.restart();
    }
    let mut client = Client::connect(&service).await;
    client.subscribe(&run, Some(after)).await;
    seen.extend(client.until(length(&log)).await);
    assert_eq!(numbers(&seen), (0..5000).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_is_sent_only_when_it_is_whole() {
    let service = Service::start(done());
    let (run, log) = (
        service.place.run_id(),
        service.place.run_dir().join("events.jsonl"),
    );
    let mut client = Client::connect(&service).await;
    client.subscribe(&run, None).await;
    let mut file = OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(b"{\"event\":\"output\",").unwrap();
    file.write_all(b"\"number\":7}\nnot json\n{\"event\":\"output\",\"number\":8}\n")
        .unwrap();
    let events = client.until(length(&log)).await;
    assert_eq!(numbers(&events), [7, 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_brief_subscription_has_the_kinds_of_many_events_in_one_message() {
    let service = Service::start(done());
    let (run, log) = (
        service.place.run_id(),
        service.place.run_dir().join("events.jsonl"),
    );
    let mut client = Client::connect(&service).await;
    client
        .say(&json!({"subscribe": run, "after": 0, "brief": true}))
        .await;
    client.receive().await.unwrap();
    let first = client.until(length(&log)).await;
    let has_kind = |kind: &str| {
        first
            .iter()
            .any(|message| message["kinds"].to_string().contains(kind))
    };
    assert!(has_kind("run_started") && has_kind("run_ended"), "{first:?}");
    append(&log, 0, 2000, 10);
    let messages = client.until(length(&log)).await;
    assert!(messages.len() < 100, "{}", messages.len());
    for message in messages {
        assert_eq!(message["kinds"], json!(["output"]));
        assert_eq!(message["event"], Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_closed_and_delays_no_other() {
    let service = Service::start(done());
    let (run, log) = (
        service.place.run_id(),
        service.place.run_dir().join("events.jsonl"),
    );
    let start = length(&log);
    let (mut stalled, mut other) = (Client::connect(&service).await, Client::connect(&service).await);
    stalled.subscribe(&run, Some(start)).await;
    other.subscribe(&run, Some(start)).await;
    // More than the buffers of the system hold.
    append(&log, 0, 20_000, 1000);
    let began = Instant::now();
    let events = other.until(length(&log)).await;
    assert_eq!(numbers(&events), (0..20_000).collect::<Vec<u64>>());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    tokio::time::sleep(Duration::from_secs(33).saturating_sub(began.elapsed())).await;
    let mut received = Vec::new();
    while let Some(event) = stalled.receive().await {
        received.push(event);
    }
    assert!(received.len() < 20_000, "{}", received.len());
    let after = received
        .last()
        .map_or(start, |event| event["id"].as_u64().unwrap());
    let mut again = Client::connect(&service).await;
    again.subscribe(&run, Some(after)).await;
    received.extend(again.until(length(&log)).await);
    assert_eq!(numbers(&received), (0..20_000).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_list_of_runs_are_sent() {
    let service = Service::start(done());
    let run = service.place.run_id();
    let mut client = Client::connect(&service).await;
    client.say(&json!({"subscribe": "runs"})).await;
    assert_eq!(client.receive().await.unwrap(), json!({"subscribed": "runs"}));
    service
        .ask("DELETE", &format!("/api/runs/{run}"), None)
        .expect(204);
    // The removal locks it first, which may be seen.
    while !client.receive().await.unwrap()["status"].is_null() {}
    let held = Held::start(&service.place);
    let new = client.receive().await.unwrap();
    assert_eq!(new["run"], service.place.run_id());
    held.let_go();
    loop {
        let change = client.receive().await.unwrap();
        if change["status"]["state"] == "done" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_subscription_is_a_problem_and_ends_nothing() {
    let service = Service::start(done());
    let run = service.place.run_id();
    let mut client = Client::connect(&service).await;
    for (message, status) in [
        (json!({"subscribe": "rmissing1"}), 404),
        (json!({"subscribe": "../x"}), 400),
        (json!({"subscribe": run, "after": 1}), 400),
        (json!({"subscribe": run, "after": u64::MAX}), 400),
        (json!({"shell": "id"}), 400),
        (json!({}), 400),
    ] {
        client.say(&message).await;
        let reply = client.receive().await.unwrap();
        assert_eq!(reply["problem"]["status"], status, "{message}: {reply}");
    }
    client.subscribe(&run, Some(0)).await;
    client.say(&json!({"unsubscribe": run})).await;
    while client.receive().await.unwrap()["unsubscribed"] != run {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_with_its_token() {
    let service = Service::start(done());
    let run = service.place.run_id();
    let token = create_token(&service.place, "visitor", "read");
    let (mut visitor, mut other) = (
        Client::connect_as(&service, &token).await,
        Client::connect(&service).await,
    );
    visitor.subscribe(&run, None).await;
    other.subscribe(&run, None).await;
    service
        .place
        .run(&["api-token", "revoke", "visitor"])
        .expect(0, &[]);
    let closed = loop {
        let message = timeout(TIMEOUT, visitor.0.next()).await.unwrap();
        match message {
            Some(Ok(Message::Close(close))) => break close.unwrap(),
            Some(Ok(_)) => {}
            ended => panic!("{ended:?}"),
        }
    };
    assert_eq!(u16::from(closed.code), 1008, "{closed:?}");
    let log = service.place.run_dir().join("events.jsonl");
    append(&log, 0, 1, 10);
    assert_eq!(numbers(&other.until(length(&log)).await), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_subscribed_again_sends_nothing_twice() {
    let service = Service::start(done());
    let (run, log) = (
        service.place.run_id(),
        service.place.run_dir().join("events.jsonl"),
    );
    let start = length(&log);
    append(&log, 0, 2000, 1000);
    let mut client = Client::connect(&service).await;
    for _ in 0..5 {
        client.say(&json!({"subscribe": run, "after": start})).await;
    }
    // Everything after the last confirmation is of the last subscription.
    let mut confirmed = 0;
    let mut events = Vec::new();
    while confirmed < 5 || numbers(&events).last() != Some(&1999) {
        let message = client.receive().await.unwrap();
        if message["subscribed"] == run.as_str() {
            confirmed += 1;
            events.clear();
        } else {
            events.push(message);
        }
    }
    assert_eq!(numbers(&events), (0..2000).collect::<Vec<u64>>());
    client.say(&json!({"subscribe": run, "after": start})).await;
    client.say(&json!({"unsubscribe": run})).await;
    while client.receive().await.unwrap()["unsubscribed"] != run.as_str() {}
    client.say(&json!({})).await;
    assert_eq!(client.receive().await.unwrap()["problem"]["status"], 400);
}
