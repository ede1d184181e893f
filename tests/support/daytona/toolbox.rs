//! The toolbox of a sandbox: commands, sessions with their logs, files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Multipart, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use bollard::container::LogOutput;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::room::Room;
use super::{Refusal, Shared, terminal};

type Pairs = Query<HashMap<String, String>>;

/// Tells an entry of a directory; names may hold anything but a slash and a zero.
const LIST: &str =
    "[ -d \"$1\" ] || exit 2; find \"$1\"/ -mindepth 1 -maxdepth 1 -printf '%y %s %m %T@ %f\\0'";
const UPLOAD: &str = "mkdir -p -- \"${1%/*}\" && cat > \"$1\"";
const DOWNLOAD: &str = "[ -f \"$1\" ] || exit 2; cat -- \"$1\"";
/// Ends a session and all that it started, leaves first.
const END: &str = "end() { for child in $(pgrep -P \"$1\"); do end \"$child\"; done; kill -9 \"$1\" 2>/dev/null; }; \
                   read -r first < \"/tmp/.session-$1\" && end \"$first\"; rm -f \"/tmp/.session-$1\"";
const SESSION: &str = "echo $$ > \"/tmp/.session-$1\"; eval \"$2\"";

/// What a command of a session has printed, line by line, and how it ended.
#[derive(Default)]
pub(super) struct Log {
    state: Mutex<(Vec<u8>, Option<i64>)>,
    more: Notify,
}

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/toolbox/{id}/process/execute", post(execute))
        .route("/toolbox/{id}/process/session", post(open_session))
        .route("/toolbox/{id}/process/session/{session}", delete(end_session))
        .route("/toolbox/{id}/process/session/{session}/exec", post(start))
        .route(
            "/toolbox/{id}/process/session/{session}/command/{command}",
            get(command),
        )
        .route(
            "/toolbox/{id}/process/session/{session}/command/{command}/logs",
            get(logs),
        )
        .route("/toolbox/{id}/process/pty", post(terminal::open))
        .route("/toolbox/{id}/process/pty/{terminal}", delete(terminal::end))
        .route(
            "/toolbox/{id}/process/pty/{terminal}/connect",
            get(terminal::connect),
        )
        .route("/toolbox/{id}/files", get(list))
        .route("/toolbox/{id}/files/bulk-upload", post(upload))
        .route("/toolbox/{id}/files/download", get(download))
}

async fn execute(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Json(wanted): Json<Value>,
) -> Result<Json<Value>, Refusal> {
    let room = shared.room(&id)?;
    let command = wanted["command"].as_str().unwrap_or_default();
    let limit = Duration::from_secs(wanted["timeout"].as_u64().unwrap_or(10));
    let args = [wanted["cwd"].as_str().unwrap_or("/"), command];
    let run = room.script("cd -- \"$1\" && eval \"$2\"", &args, b"");
    let ended = tokio::time::timeout(limit, run).await;
    let ended = ended.map_err(|_| Refusal(408, "command execution timeout".to_owned()))?;
    Ok(Json(
        json!({ "exitCode": ended.code, "result": String::from_utf8_lossy(&ended.output) }),
    ))
}

async fn open_session(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Json(wanted): Json<Value>,
) -> Result<StatusCode, Refusal> {
    shared.room(&id)?;
    let session = wanted["sessionId"].as_str().unwrap_or_default().to_owned();
    let mut sessions = shared.sessions.lock().unwrap();
    if sessions.contains_key(&session) {
        return Err(Refusal(409, "session already exists".to_owned()));
    }
    sessions.insert(session, Arc::default());
    Ok(StatusCode::CREATED)
}

async fn end_session(
    State(shared): State<Arc<Shared>>,
    Path((id, session)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let room = shared.room(&id)?;
    let known = shared.sessions.lock().unwrap().remove(&session);
    known.ok_or_else(|| Refusal(404, "session not found".to_owned()))?;
    room.script(END, &[&session], b"").await;
    Ok(StatusCode::NO_CONTENT)
}

async fn start(
    State(shared): State<Arc<Shared>>,
    Path((id, session)): Path<(String, String)>,
    Json(wanted): Json<Value>,
) -> Result<Response, Refusal> {
    let room = shared.room(&id)?;
    let log = shared.log(&session)?;
    let line = wanted["command"].as_str().unwrap_or_default().to_owned();
    tokio::spawn(async move { log.record(&room, &session, &line).await });
    let started = json!({ "cmdId": "c1", "output": null, "stdout": null, "stderr": null, "exitCode": null });
    Ok((StatusCode::ACCEPTED, Json(started)).into_response())
}

async fn command(
    State(shared): State<Arc<Shared>>,
    Path((id, session, command)): Path<(String, String, String)>,
) -> Result<Json<Value>, Refusal> {
    shared.room(&id)?;
    let code = shared.log(&session)?.state.lock().unwrap().1;
    Ok(Json(json!({ "id": command, "command": "…", "exitCode": code })))
}

async fn logs(
    State(shared): State<Arc<Shared>>,
    Path((id, session, _)): Path<(String, String, String)>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    shared.room(&id)?;
    let log = shared.log(&session)?;
    let breaks_off = shared.breaks_off("logs");
    Ok(upgrade.on_upgrade(move |socket| log.show(socket, breaks_off)))
}

async fn list(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Pairs,
) -> Result<Json<Value>, Refusal> {
    let ended = shared.room(&id)?.script(LIST, &[&query["path"]], b"").await;
    if ended.code != 0 {
        return Err(Refusal(404, "no such file or directory".to_owned()));
    }
    let text = String::from_utf8_lossy(&ended.output).into_owned();
    let entries: Vec<Value> = text.split_terminator('\0').map(entry).collect();
    Ok(Json(json!(entries)))
}

fn entry(line: &str) -> Value {
    let mut parts = line.splitn(5, ' ');
    let mut next = || parts.next().unwrap();
    let (kind, size, mode, time, name) = (next(), next(), next(), next(), next());
    let (seconds, nanos) = time.split_once('.').unwrap();
    let time = jiff::Timestamp::new(seconds.parse().unwrap(), nanos[..9].parse().unwrap()).unwrap();
    json!({
        "name": name, "isDir": kind == "d", "size": size.parse::<u64>().unwrap(), "permissions": format!("0{mode}"),
        "mode": "-rw-r--r--", "modTime": time.to_string(), "modifiedAt": time.to_string(), "owner": "daytona",
        "group": "daytona",
    })
}

async fn upload(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    mut form: Multipart,
) -> Result<StatusCode, Refusal> {
    let room = shared.room(&id)?;
    let mut path = String::new();
    while let Some(field) = form
        .next_field()
        .await
        .map_err(|error| Refusal(400, error.to_string()))?
    {
        match field.name() {
            Some("files[0].path") => path = field.text().await.unwrap(),
            Some("files[0].file") => {
                let bytes = field
                    .bytes()
                    .await
                    .map_err(|error| Refusal(400, error.to_string()))?;
                let ended = room.script(UPLOAD, &[&path], &bytes).await;
                if ended.code != 0 {
                    return Err(Refusal(400, String::from_utf8_lossy(&ended.output).into_owned()));
                }
            }
            other => return Err(Refusal(400, format!("no field {other:?}"))),
        }
    }
    Ok(StatusCode::OK)
}

async fn download(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Pairs,
) -> Result<Response, Refusal> {
    let ended = shared.room(&id)?.script(DOWNLOAD, &[&query["path"]], b"").await;
    match ended.code {
        0 => Ok(ended.output.into_response()),
        _ => Err(Refusal(404, "no such file or directory".to_owned())),
    }
}

impl Shared {
    fn log(&self, session: &str) -> Result<Arc<Log>, Refusal> {
        let sessions = self.sessions.lock().unwrap();
        let found = sessions.get(session).cloned();
        found.ok_or_else(|| Refusal(404, "session not found".to_owned()))
    }
}

impl Log {
    /// Runs a command and takes what it prints by the line; a last line without an end gets one.
    async fn record(&self, room: &Room, session: &str, line: &str) {
        let argv = ["/bin/sh", "-c", SESSION, "sh", session, line];
        let mut running = room.start_command(&argv).await;
        let mut partial = [Vec::new(), Vec::new()];
        while let Some(Ok(piece)) = running.output.next().await {
            let stream = usize::from(matches!(piece, LogOutput::StdErr { .. }));
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
        let code = running.code().await;
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

    /// Sends the log from its beginning, and its end when there is one.
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
