//! Terminals of a sandbox: a shell behind a pseudo-terminal, over a WebSocket.

use std::sync::Arc;

use axum::Json;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::room::{Room, Running};
use super::{Refusal, Shared};

/// How many messages are buffered for a slow reader before it is disconnected.
const QUEUE: usize = 256;
/// The longest message that is accepted.
const LONGEST: usize = 64 * 1024;

/// A terminal before its connection; afterwards only its name is kept.
pub struct Terminal(Option<Running>);

pub async fn open(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Json(wanted): Json<Value>,
) -> Result<Response, Refusal> {
    let room = shared.room(&id)?;
    let name = wanted["id"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(Refusal(400, "session ID is required".to_owned()));
    }
    if shared.terminals.lock().unwrap().contains_key(&name) {
        return Err(Refusal(
            409,
            format!("PTY session with ID '{name}' already exists"),
        ));
    }
    // The pseudo-terminal is created inside: the engine's own would go through a client that parses its bytes as headers.
    let shell = "echo $$ > \"/tmp/.terminal-$1\"; exec script -q -f -c 'exec bash -i -l' /dev/null";
    let argv = ["/bin/sh", "-c", shell, "sh", &name];
    let running = room.start_command(&argv).await;
    shared
        .terminals
        .lock()
        .unwrap()
        .insert(name.clone(), Terminal(Some(running)));
    Ok((StatusCode::CREATED, Json(json!({ "sessionId": name }))).into_response())
}

pub async fn end(
    State(shared): State<Arc<Shared>>,
    Path((id, name)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    let room = shared.room(&id)?;
    let known = shared.terminals.lock().unwrap().remove(&name);
    known.ok_or_else(|| Refusal(404, "PTY session not found".to_owned()))?;
    end_tree(&room, &name).await;
    Ok(Json(json!({ "message": "PTY session deleted" })))
}

async fn end_tree(room: &Room, name: &str) {
    let end = "end() { for child in $(pgrep -P \"$1\"); do end \"$child\"; done; kill -9 \"$1\" 2>/dev/null; }; \
               read -r first < \"/tmp/.terminal-$1\" && end \"$first\"; rm -f \"/tmp/.terminal-$1\"";
    room.script(end, &[name], b"").await;
}

pub async fn connect(
    State(shared): State<Arc<Shared>>,
    Path((id, name)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    shared.room(&id)?;
    let upgrade = upgrade.max_message_size(LONGEST);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let taken = shared
            .terminals
            .lock()
            .unwrap()
            .get_mut(&name)
            .and_then(|terminal| terminal.0.take());
        match taken {
            Some(running) => tokio::select! {
                () = serve(socket, running) => {}
                () = shared.broken.notified() => {}
            },
            None => refuse(socket).await,
        }
        shared.terminals.lock().unwrap().remove(&name);
    }))
}

async fn refuse(mut socket: WebSocket) {
    let error = json!({ "type": "control", "status": "error", "error": "Failed to connect to PTY session" });
    let _ = socket.send(Message::Text(error.to_string().into())).await;
}

/// Forwards bytes in both directions until either side ends.
async fn serve(socket: WebSocket, running: Running) {
    let (mut sink, mut stream) = socket.split();
    let connected = json!({ "type": "control", "status": "connected" });
    let _ = sink.send(Message::Text(connected.to_string().into())).await;
    let (mut output, mut input) = (running.output, running.input);
    let (queue, mut queued) = mpsc::channel(QUEUE);
    let read = async {
        while let Some(piece) = output.next().await {
            if queue.try_send(piece.into_bytes()).is_err() {
                return (1008, "slow consumer");
            }
        }
        (1011, r#"{"exitCode":137,"exitReason":"SIGKILL"}"#)
    };
    let write = async {
        while let Some(bytes) = queued.recv().await {
            if sink.send(Message::Binary(bytes)).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let take = async {
        while let Some(Ok(message)) = stream.next().await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => text.into(),
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) => continue,
            };
            if input.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let why = tokio::select! {
        why = read => Some(why),
        () = write => None,
        () = take => None,
    };
    if let Some((code, reason)) = why {
        let close = CloseFrame {
            code,
            reason: reason.into(),
        };
        let _ = sink.send(Message::Close(Some(close))).await;
    }
}
