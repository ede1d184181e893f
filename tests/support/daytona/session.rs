//! Sessions of a sandbox: commands whose output is stored by line and can be followed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::room::{Piece, Room};
use super::{Refusal, Shared};

/// Kills a session and all its descendants.
const END: &str = "end() { for child in $(pgrep -P \"$1\"); do end \"$child\"; done; kill -9 \"$1\" 2>/dev/null; }; \
                   while read -r first; do end \"$first\"; done < \"/tmp/.session-$1\"; rm -f \"/tmp/.session-$1\"";
const RUN: &str = "echo $$ >> \"/tmp/.session-$1\"; eval \"$2\"";

/// The commands of a session, by id.
#[derive(Clone, Default)]
pub struct Session {
    commands: BTreeMap<String, (String, Arc<Log>)>,
}

/// The output of a command by line, and its exit code.
#[derive(Default)]
struct Log {
    state: Mutex<(Vec<u8>, Option<i64>)>,
    more: Notify,
}

type Here = State<Arc<Shared>>;
type Named = Path<(String, String)>;
type Command = Path<(String, String, String)>;

pub async fn open(
    State(shared): Here,
    Path(id): Path<String>,
    Json(wanted): Json<Value>,
) -> Result<StatusCode, Refusal> {
    shared.room(&id)?;
    let session = key(&id, wanted["sessionId"].as_str().unwrap_or_default());
    let mut sessions = shared.sessions.lock().unwrap();
    if sessions.contains_key(&session) {
        return Err(Refusal(409, "session already exists".to_owned()));
    }
    sessions.insert(session, Session::default());
    Ok(StatusCode::CREATED)
}

pub async fn list(State(shared): Here, Path(id): Path<String>) -> Result<Json<Value>, Refusal> {
    shared.room(&id)?;
    let sessions = shared.sessions.lock().unwrap();
    let own = sessions.iter().filter_map(|(name, session)| {
        let name = name.strip_prefix(&key(&id, ""))?;
        Some(session.to_json(name))
    });
    Ok(Json(own.collect()))
}

pub async fn show(State(shared): Here, Path((id, session)): Named) -> Result<Json<Value>, Refusal> {
    shared.room(&id)?;
    Ok(Json(shared.session(&id, &session)?.to_json(&session)))
}

pub async fn end(State(shared): Here, Path((id, session)): Named) -> Result<StatusCode, Refusal> {
    let room = shared.room(&id)?;
    let known = shared.sessions.lock().unwrap().remove(&key(&id, &session));
    known.ok_or_else(|| Refusal(404, "session not found".to_owned()))?;
    room.script(END, &[&session], b"").await;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn start(
    State(shared): Here,
    Path((id, session)): Named,
    Json(wanted): Json<Value>,
) -> Result<Response, Refusal> {
    let room = shared.room(&id)?;
    let line = wanted["command"].as_str().unwrap_or_default().to_owned();
    let (command, log) = (format!("{:032x}", fastrand::u128(..)), Arc::<Log>::default());
    shared.add_command((&id, &session), &command, (line.clone(), log.clone()))?;
    let recorded = log.clone();
    let recording = tokio::spawn(async move { recorded.record(&room, &session, &line).await });
    if wanted["runAsync"] == true || wanted["async"] == true {
        return Ok((StatusCode::ACCEPTED, Json(json!({ "cmdId": command }))).into_response());
    }
    recording.await.unwrap();
    let mut answer = log.to_json();
    answer["cmdId"] = json!(command);
    answer["exitCode"] = json!(log.state.lock().unwrap().1);
    Ok(Json(answer).into_response())
}

pub async fn command(
    State(shared): Here,
    Path((id, session, command)): Command,
) -> Result<Json<Value>, Refusal> {
    shared.room(&id)?;
    let (line, log) = shared.session(&id, &session)?.command(&command)?;
    Ok(Json(command_json(&command, &line, &log)))
}

pub async fn logs(
    State(shared): Here,
    Path((id, session, command)): Command,
    request: Request,
) -> Result<Response, Refusal> {
    shared.room(&id)?;
    let (_, log) = shared.session(&id, &session)?.command(&command)?;
    let (mut parts, _) = request.into_parts();
    let protocol = parts.headers.get("sec-websocket-protocol").cloned();
    let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut parts, &shared).await else {
        return Ok(Json(log.to_json()).into_response());
    };
    let protocol = protocol.and_then(|protocol| protocol.to_str().map(ToOwned::to_owned).ok());
    let breaks_off = shared.breaks_off("logs");
    let upgrade = upgrade.protocols(protocol);
    Ok(upgrade.on_upgrade(move |socket| log.show(socket, breaks_off)))
}

/// Sessions of different sandboxes may have the same name.
fn key(sandbox: &str, session: &str) -> String {
    format!("{sandbox}/{session}")
}

fn command_json(id: &str, line: &str, log: &Log) -> Value {
    let mut fields = json!({ "id": id, "command": line });
    if let Some(code) = log.state.lock().unwrap().1 {
        fields["exitCode"] = json!(code);
    }
    fields
}

impl Shared {
    fn session(&self, sandbox: &str, session: &str) -> Result<Session, Refusal> {
        let sessions = self.sessions.lock().unwrap();
        let found = sessions.get(&key(sandbox, session)).cloned();
        found.ok_or_else(|| Refusal(404, "session not found".to_owned()))
    }
}

impl Shared {
    fn add_command(
        &self,
        (sandbox, session): (&str, &str),
        id: &str,
        command: (String, Arc<Log>),
    ) -> Result<(), Refusal> {
        let mut sessions = self.sessions.lock().unwrap();
        let known = sessions.get_mut(&key(sandbox, session));
        let known = known.ok_or_else(|| Refusal(404, "session not found".to_owned()))?;
        known.commands.insert(id.to_owned(), command);
        Ok(())
    }
}

impl Session {
    fn to_json(&self, name: &str) -> Value {
        let commands = self.commands.iter();
        let commands: Vec<Value> = commands
            .map(|(id, (line, log))| command_json(id, line, log))
            .collect();
        json!({ "sessionId": name, "commands": commands })
    }

    fn command(&self, id: &str) -> Result<(String, Arc<Log>), Refusal> {
        let found = self.commands.get(id).cloned();
        found.ok_or_else(|| Refusal(404, "command not found".to_owned()))
    }
}

impl Log {
    /// Runs a command and stores its output by line. A missing last newline is added.
    async fn record(&self, room: &Room, session: &str, line: &str) {
        let argv = ["/bin/sh", "-c", RUN, "sh", session, line];
        let mut running = room.start_command(&argv).await;
        let mut partial = [Vec::new(), Vec::new()];
        while let Some(piece) = running.output.next().await {
            let stream = usize::from(matches!(piece, Piece::Error(_)));
            partial[stream].extend_from_slice(&piece.into_bytes());
            while let Some(end) = partial[stream].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = partial[stream].drain(..=end).collect();
                self.add(stream, &line);
            }
        }
        for (stream, mut line) in partial
            .into_iter()
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
        {
            line.push(b'\n');
            self.add(stream, &line);
        }
        let code = running.code.await;
        self.state.lock().unwrap().1 = Some(code);
        self.more.notify_waiters();
    }

    fn add(&self, stream: usize, line: &[u8]) {
        let mark = [u8::try_from(stream).unwrap() + 1; 3];
        let mut state = self.state.lock().unwrap();
        state.0.extend_from_slice(&mark);
        state.0.extend_from_slice(line);
        drop(state);
        self.more.notify_waiters();
    }

    /// The whole output, with markers and by stream.
    fn to_json(&self) -> Value {
        let state = self.state.lock().unwrap();
        let text = String::from_utf8_lossy(&state.0).into_owned();
        let of = |mark: &str| -> String {
            let lines = text.split_inclusive('\n');
            lines.filter_map(|line| line.strip_prefix(mark)).collect()
        };
        json!({ "output": text, "stdout": of("\u{1}\u{1}\u{1}"), "stderr": of("\u{2}\u{2}\u{2}") })
    }

    /// Sends the log from its beginning to its end.
    async fn show(self: Arc<Self>, mut socket: WebSocket, breaks_off: bool) {
        let mut sent = 0;
        loop {
            let more = self.more.notified();
            let (bytes, over) = {
                let state = self.state.lock().unwrap();
                (state.0[sent..].to_vec(), state.1.is_some())
            };
            if breaks_off && !bytes.is_empty() {
                let half = bytes[..bytes.len().div_ceil(2)].to_vec();
                let _ = socket.send(Message::Binary(half.into())).await;
                return;
            }
            sent += bytes.len();
            if !bytes.is_empty() && socket.send(Message::Binary(bytes.into())).await.is_err() {
                return;
            }
            if over {
                let close = CloseFrame {
                    code: 1000,
                    reason: "".into(),
                };
                let _ = socket.send(Message::Close(Some(close))).await;
                return;
            }
            tokio::select! {
                () = more => {}
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    }
}
