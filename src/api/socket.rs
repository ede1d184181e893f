//! The WebSocket: one connection for all runs that a client watches.
//!
//! Nothing is queued for a client but the few batches it has not read yet. Each subscription knows the id of its last event
//! and reads on from there, from memory or from the log, when the client takes more.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::SinkExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::id::RunId;
use crate::secret::Redactor;

use super::problem::Problem;
use super::run_news::missed;
use super::tail::{BATCH_BYTES, EventFrame, Tail, is_event_id};
use super::{Api, Caller};

/// How many bytes of events wait for one client at most, if no single event is longer.
const CLIENT_BYTES: usize = 64 * 1024;

/// How much is read from a client at once, in bytes. Each connection has a buffer of this size, which each read fills with
/// zeros: by default 128 KB, which with 1,000 clients is most of the memory and of the processor time.
const READ_BUFFER: usize = 4 * 1024;

/// How many bytes of messages are collected before they are written to a client. The buffer stays as large as it once was, if
/// no single message is longer.
const WRITE_BUFFER: usize = 16 * 1024;

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

/// How often the token or session of a connection is looked up again.
const ADMISSION_CHECK: Duration = Duration::from_secs(5);

/// The close codes: try again later, and a violated policy.
const TOO_SLOW: u16 = 1013;
const NOT_ADMITTED: u16 = 1008;

pub(super) async fn connect(
    State(api): State<Arc<Api>>,
    caller: Caller,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let upgrade = upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(LONGEST_MESSAGE)
        .max_frame_size(LONGEST_MESSAGE);
    Ok(upgrade.on_upgrade(|socket| Client::new(api, caller, socket).run()))
}

/// What a client sends.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) struct ClientMessage {
    subscribe: Option<String>,
    /// The id of the last event that the client has; by default only new events are sent.
    after: Option<u64>,
    /// Whether a message says what many events are, without the events themselves.
    #[serde(default)]
    brief: bool,
    unsubscribe: Option<String>,
}

/// Messages that wait for a client, with their share of its bytes.
struct Batch {
    subscription: u64,
    messages: Vec<Utf8Bytes>,
    _share: OwnedSemaphorePermit,
}

/// A topic that a client gets.
struct Subscription {
    /// Its number among those of the connection. A batch of another one is of an earlier subscription of the topic.
    number: u64,
    task: AbortHandle,
}

struct Client {
    api: Arc<Api>,
    caller: Caller,
    socket: WebSocket,
    subscriptions: HashMap<String, Subscription>,
    last_number: u64,
    batches: mpsc::Receiver<Batch>,
    sender: mpsc::Sender<Batch>,
    bytes: Arc<Semaphore>,
}

/// Why a connection ends.
enum ConnectionEnd {
    Closed,
    TooSlow,
    NotAdmitted,
}

impl Client {
    fn new(api: Arc<Api>, caller: Caller, socket: WebSocket) -> Self {
        let (sender, batches) = mpsc::channel(1);
        Self {
            api,
            caller,
            socket,
            subscriptions: HashMap::new(),
            last_number: 0,
            batches,
            sender,
            bytes: Arc::new(Semaphore::new(CLIENT_BYTES)),
        }
    }

    async fn run(mut self) {
        let end = self.serve().await;
        for subscription in self.subscriptions.values() {
            subscription.task.abort();
        }
        let (code, reason) = match end {
            Ok(()) | Err(ConnectionEnd::Closed) => return,
            Err(ConnectionEnd::TooSlow) => (TOO_SLOW, "too slow; subscribe again after the last event"),
            Err(ConnectionEnd::NotAdmitted) => (NOT_ADMITTED, "the token or session ended"),
        };
        let reason = reason.into();
        let close = self
            .socket
            .send(Message::Close(Some(CloseFrame { code, reason })));
        let _ = timeout(Duration::from_secs(1), close).await;
    }

    async fn serve(&mut self) -> Result<(), ConnectionEnd> {
        let mut pings = interval(PING);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut admission = interval(ADMISSION_CHECK);
        admission.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
                    let mut current = self.subscriptions.values();
                    if current.any(|subscription| subscription.number == batch.subscription) {
                        self.send_all(batch.messages).await?;
                    }
                }
                _ = admission.tick() => {
                    if !self.caller.is_admitted(&self.api.store).await {
                        return Err(ConnectionEnd::NotAdmitted);
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
        in_time(self.socket.send(message)).await
    }

    /// Sends messages with as few writes as they fit into, in place of one for each event.
    async fn send_all(&mut self, messages: Vec<Utf8Bytes>) -> Result<(), ConnectionEnd> {
        for message in messages {
            in_time(self.socket.feed(Message::Text(message))).await?;
        }
        in_time(self.socket.flush()).await
    }

    async fn obey(&mut self, text: &str) -> Result<(), ConnectionEnd> {
        let reply = match serde_json::from_str::<ClientMessage>(text) {
            Ok(ClientMessage {
                subscribe: Some(topic),
                after,
                brief,
                unsubscribe: None,
            }) => self.subscribe(topic, after, brief).await,
            Ok(ClientMessage {
                subscribe: None,
                after: None,
                brief: false,
                unsubscribe: Some(topic),
            }) => {
                self.unsubscribe(&topic);
                Ok(json!({"unsubscribed": topic}))
            }
            Ok(_) => Err(Problem::bad_request("expected `subscribe` or `unsubscribe`")),
            Err(error) => Err(Problem::bad_request(format!("the message is not valid: {error}"))),
        };
        let reply = reply.unwrap_or_else(|problem| json!({"problem": problem}));
        self.send(Message::Text(reply.to_string().into())).await
    }

    /// Starts to send the events of a topic. A topic that is subscribed already starts again.
    async fn subscribe(&mut self, topic: String, after: Option<u64>, brief: bool) -> Result<Value, Problem> {
        self.subscriptions
            .retain(|_, subscription| !subscription.task.is_finished());
        self.unsubscribe(&topic);
        if self.subscriptions.len() >= MOST_SUBSCRIPTIONS {
            return Err(Problem::bad_request(format!(
                "a connection watches at most {MOST_SUBSCRIPTIONS} runs"
            )));
        }
        self.caller.require_run(&topic)?;
        if topic == RUNS {
            let (news, outlet) = (self.api.news.subscribe(), self.outlet());
            self.api.index.look_for_new().await?;
            self.start(topic, send_news(news, outlet));
            return Ok(json!({"subscribed": RUNS}));
        }
        let unreadable = |error: std::io::Error| Problem::internal(error.to_string());
        let id = RunId::parse(&topic).map_err(|error| Problem::bad_request(error.to_string()))?;
        let log = self.api.event_log(&id).await?;
        if !is_event_id(&log, after.unwrap_or(0)).map_err(unreadable)? {
            return Err(Problem::bad_request(format!("run `{id}` has no such event id")));
        }
        let redactor = self.api.redactor(&self.caller).await?;
        let tail = self.api.tails.open(log).map_err(unreadable)?;
        let after = after.unwrap_or_else(|| tail.end());
        let outlet = self.outlet();
        self.start(topic, send_events(tail, after, brief, redactor, outlet));
        Ok(json!({"subscribed": id, "after": after}))
    }

    fn unsubscribe(&mut self, topic: &str) {
        if let Some(subscription) = self.subscriptions.remove(topic) {
            subscription.task.abort();
        }
    }

    /// Where the next subscription sends its messages.
    fn outlet(&mut self) -> Outlet {
        self.last_number += 1;
        Outlet {
            subscription: self.last_number,
            sender: self.sender.clone(),
            bytes: self.bytes.clone(),
        }
    }

    fn start(&mut self, topic: String, sends: impl Future<Output = Option<()>> + Send + 'static) {
        let subscription = Subscription {
            number: self.last_number,
            task: tokio::spawn(sends).abort_handle(),
        };
        self.subscriptions.insert(topic, subscription);
    }
}

/// Fails if the client does not take it in time.
async fn in_time(sent: impl Future<Output = Result<(), axum::Error>>) -> Result<(), ConnectionEnd> {
    match timeout(STALLED, sent).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(ConnectionEnd::Closed),
        Err(_) => Err(ConnectionEnd::TooSlow),
    }
}

/// Where one subscription sends its messages.
struct Outlet {
    subscription: u64,
    sender: mpsc::Sender<Batch>,
    bytes: Arc<Semaphore>,
}

impl Outlet {
    /// Waits until the client has room for so many bytes.
    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let share = u32::try_from(bytes.clamp(1, CLIENT_BYTES)).ok()?;
        self.bytes.clone().acquire_many_owned(share).await.ok()
    }

    /// Sends messages, and gives back the part of the room that they do not need. `None` if the connection ended.
    async fn send(&self, messages: Vec<Utf8Bytes>, mut room: OwnedSemaphorePermit) -> Option<()> {
        let length: usize = messages.iter().map(|message| message.len()).sum();
        let share = room.split(room.num_permits().min(length))?;
        drop(room);
        let batch = Batch {
            subscription: self.subscription,
            messages,
            _share: share,
        };
        self.sender.send(batch).await.ok()
    }
}

/// Sends the events of one run, until the connection ends or the log cannot be read.
async fn send_events(
    tail: Arc<Tail>,
    mut after: u64,
    brief: bool,
    redactor: Redactor,
    outlet: Outlet,
) -> Option<()> {
    loop {
        tail.wait(after).await;
        // Before anything is read: a connection with many subscriptions has no more than this in memory.
        let room = outlet.room(BATCH_BYTES).await?;
        let (frames, last) = tail.read(after).await.ok()?;
        after = last;
        let messages = if brief {
            brief_message(tail.run(), &frames, last).into_iter().collect()
        } else {
            frames
                .into_iter()
                .filter_map(|frame| without_secrets(&redactor, frame))
                .collect()
        };
        outlet.send(messages, room).await?;
    }
}

/// The text of an event without secrets. `None` if one cannot be removed.
fn without_secrets(redactor: &Redactor, frame: EventFrame) -> Option<Utf8Bytes> {
    if !redactor.finds_secret_in(&frame.text) {
        return Some(frame.text);
    }
    let event: Value = serde_json::from_str(&frame.text).ok()?;
    Some(redactor.redact_json(event).ok()?.to_string().into())
}

/// One message for many events: the id of the last one, and their kinds. `None` if there is no event.
fn brief_message(run: &RunId, frames: &[EventFrame], last: u64) -> Option<Utf8Bytes> {
    #[derive(Deserialize)]
    struct Frame<'a> {
        #[serde(borrow)]
        event: Kind<'a>,
    }
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        event: Cow<'a, str>,
    }
    let kinds = frames.iter().filter_map(|frame| {
        let frame: Frame<'_> = serde_json::from_str(&frame.text).ok()?;
        Some(frame.event.event)
    });
    let kinds: BTreeSet<Cow<'_, str>> = kinds.collect();
    (!frames.is_empty()).then(|| json!({"run": run, "id": last, "kinds": kinds}).to_string().into())
}

/// Sends changes of the list of runs. A client that missed some is asked to read the list again.
async fn send_news(mut news: broadcast::Receiver<Utf8Bytes>, outlet: Outlet) -> Option<()> {
    loop {
        let message = match news.recv().await {
            Ok(message) => message,
            Err(broadcast::error::RecvError::Lagged(_)) => missed(),
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        let room = outlet.room(message.len()).await?;
        outlet.send(vec![message], room).await?;
    }
}

const _: () = assert!(
    BATCH_BYTES < CLIENT_BYTES,
    "a batch fits into what waits for a client"
);
