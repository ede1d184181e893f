//! The WebSocket: one connection for all runs that a client watches.
//!
//! Nothing is queued for a client but the few batches it has not read yet. Each subscription knows the id of its last event
//! and reads on from there, from memory or from the log, when the client takes more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::id::RunId;

use super::Api;
use super::problem::Problem;
use super::tail::{BATCH_BYTES, Tail, is_event_id};

/// How many bytes of events wait for one client at most, if no single event is longer.
const CLIENT_BYTES: usize = 256 * 1024;

/// How long a client may take for one message before the connection is closed. It resumes from its last event.
const STALLED: Duration = Duration::from_secs(30);

/// How often the service sends a ping, and after how long without any message it closes the connection.
const PING: Duration = Duration::from_secs(15);
const SILENT: Duration = Duration::from_secs(45);

/// The longest message of a client, in bytes.
const LONGEST_MESSAGE: usize = 16 * 1024;

/// How many runs one client may watch.
const MOST_SUBSCRIPTIONS: usize = 256;

/// The topic of all runs.
const RUNS: &str = "runs";

/// The close code of a connection that was too slow: try again later.
const TOO_SLOW: u16 = 1013;

pub(super) async fn connect(
    State(api): State<Arc<Api>>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let upgrade = upgrade
        .max_message_size(LONGEST_MESSAGE)
        .max_frame_size(LONGEST_MESSAGE);
    Ok(upgrade.on_upgrade(|socket| Client::new(api, socket).run()))
}

/// What a client sends.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
struct ClientMessage {
    subscribe: Option<String>,
    /// The id of the last event that the client has; by default only new events are sent.
    after: Option<u64>,
    unsubscribe: Option<String>,
}

/// Messages that wait for a client, with their share of its bytes.
struct Batch {
    messages: Vec<Utf8Bytes>,
    _share: OwnedSemaphorePermit,
}

struct Client {
    api: Arc<Api>,
    socket: WebSocket,
    subscriptions: HashMap<String, AbortHandle>,
    batches: mpsc::Receiver<Batch>,
    sender: mpsc::Sender<Batch>,
    bytes: Arc<Semaphore>,
}

/// Why a connection ends.
enum ConnectionEnd {
    Closed,
    TooSlow,
}

impl Client {
    fn new(api: Arc<Api>, socket: WebSocket) -> Self {
        let (sender, batches) = mpsc::channel(1);
        Self {
            api,
            socket,
            subscriptions: HashMap::new(),
            batches,
            sender,
            bytes: Arc::new(Semaphore::new(CLIENT_BYTES)),
        }
    }

    async fn run(mut self) {
        let end = self.serve().await;
        for subscription in self.subscriptions.values() {
            subscription.abort();
        }
        if let Err(ConnectionEnd::TooSlow) = end {
            let close = CloseFrame {
                code: TOO_SLOW,
                reason: "too slow; subscribe again after the last event".into(),
            };
            let close = self.socket.send(Message::Close(Some(close)));
            let _ = timeout(Duration::from_secs(1), close).await;
        }
    }

    async fn serve(&mut self) -> Result<(), ConnectionEnd> {
        let mut pings = interval(PING);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_message = Instant::now();
        loop {
            tokio::select! {
                received = self.socket.recv() => {
                    last_message = Instant::now();
                    match received {
                        Some(Ok(Message::Text(text))) => self.obey(&text).await?,
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                        _ => return Err(ConnectionEnd::Closed),
                    }
                }
                Some(batch) = self.batches.recv() => {
                    for message in batch.messages {
                        self.send(Message::Text(message)).await?;
                    }
                }
                _ = pings.tick() => {
                    if last_message.elapsed() > SILENT {
                        return Err(ConnectionEnd::Closed);
                    }
                    self.send(Message::Ping(axum::body::Bytes::new())).await?;
                }
            }
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), ConnectionEnd> {
        match timeout(STALLED, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ConnectionEnd::Closed),
            Err(_) => Err(ConnectionEnd::TooSlow),
        }
    }

    async fn obey(&mut self, text: &str) -> Result<(), ConnectionEnd> {
        let reply = match serde_json::from_str::<ClientMessage>(text) {
            Ok(ClientMessage {
                subscribe: Some(topic),
                after,
                unsubscribe: None,
            }) => self.subscribe(topic, after).await,
            Ok(ClientMessage {
                subscribe: None,
                after: None,
                unsubscribe: Some(topic),
            }) => {
                if let Some(subscription) = self.subscriptions.remove(&topic) {
                    subscription.abort();
                }
                Ok(json!({"unsubscribed": topic}))
            }
            Ok(_) => Err(Problem::bad_request("expected `subscribe` or `unsubscribe`")),
            Err(error) => Err(Problem::bad_request(format!("the message is not valid: {error}"))),
        };
        let reply = reply.unwrap_or_else(|problem| json!({"problem": problem}));
        self.send(Message::Text(reply.to_string().into())).await
    }

    /// Starts to send the events of a topic. A topic that is subscribed already starts again.
    async fn subscribe(&mut self, topic: String, after: Option<u64>) -> Result<serde_json::Value, Problem> {
        self.subscriptions
            .retain(|_, subscription| !subscription.is_finished());
        if let Some(subscription) = self.subscriptions.remove(&topic) {
            subscription.abort();
        }
        if self.subscriptions.len() >= MOST_SUBSCRIPTIONS {
            return Err(Problem::bad_request(format!(
                "a connection watches at most {MOST_SUBSCRIPTIONS} runs"
            )));
        }
        if topic == RUNS {
            let (news, sender) = (self.api.runs_topic.subscribe().await, self.sender.clone());
            let task = tokio::spawn(send_news(news, sender, self.bytes.clone()));
            self.subscriptions.insert(topic, task.abort_handle());
            return Ok(json!({"subscribed": RUNS}));
        }
        let unreadable = |error: std::io::Error| {
            Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        };
        let id = RunId::parse(&topic).map_err(|error| Problem::bad_request(error.to_string()))?;
        let run = self.api.surroundings.runs()?.open(&id)?;
        if !is_event_id(&run, after.unwrap_or(0)).map_err(unreadable)? {
            return Err(Problem::bad_request(format!("run `{id}` has no such event id")));
        }
        let tail = self.api.tails.open(run).map_err(unreadable)?;
        let after = after.unwrap_or_else(|| tail.end());
        let task = tokio::spawn(send_events(tail, after, self.sender.clone(), self.bytes.clone()));
        self.subscriptions.insert(topic, task.abort_handle());
        Ok(json!({"subscribed": id, "after": after}))
    }
}

/// Sends the events of one run, until the connection ends or the log cannot be read.
async fn send_events(
    tail: Arc<Tail>,
    mut after: u64,
    sender: mpsc::Sender<Batch>,
    bytes: Arc<Semaphore>,
) -> Option<()> {
    loop {
        let (frames, last) = tail.next(after).await.ok()?;
        let messages: Vec<Utf8Bytes> = frames.into_iter().map(|frame| frame.text).collect();
        let share = take_share(&bytes, &messages).await?;
        after = last;
        let batch = Batch {
            messages,
            _share: share,
        };
        sender.send(batch).await.ok()?;
    }
}

/// Sends changes of the list of runs. A client that missed some is asked to read the list again.
async fn send_news(
    mut news: broadcast::Receiver<Utf8Bytes>,
    sender: mpsc::Sender<Batch>,
    bytes: Arc<Semaphore>,
) -> Option<()> {
    loop {
        let message = match news.recv().await {
            Ok(message) => message,
            Err(broadcast::error::RecvError::Lagged(_)) => {
                Utf8Bytes::from_static("{\"topic\":\"runs\",\"missed\":true}")
            }
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        let messages = vec![message];
        let share = take_share(&bytes, &messages).await?;
        let batch = Batch {
            messages,
            _share: share,
        };
        sender.send(batch).await.ok()?;
    }
}

/// Waits until the client has room for these messages.
async fn take_share(bytes: &Arc<Semaphore>, messages: &[Utf8Bytes]) -> Option<OwnedSemaphorePermit> {
    let length: usize = messages.iter().map(|message| message.len()).sum();
    let share = u32::try_from(length.clamp(1, CLIENT_BYTES)).ok()?;
    bytes.clone().acquire_many_owned(share).await.ok()
}

const _: () = assert!(
    BATCH_BYTES < CLIENT_BYTES,
    "a batch fits into what waits for a client"
);
