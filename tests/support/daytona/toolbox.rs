//! The toolbox of a sandbox: its routes, and scripts.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{Refusal, Shared, files, session, terminal};

/// Runs a line in the directory `$1`, with the variables after it.
const EXECUTE: &str = "cd -- \"$1\" || exit; line=$2; shift 2; exec env -- \"$@\" sh -c \"$line\"";

pub fn routes() -> Router<Arc<Shared>> {
    let toolbox = Router::new()
        .route("/process/execute", post(execute))
        .route("/process/session", post(session::open).get(session::list))
        .route(
            "/process/session/{session}",
            delete(session::end).get(session::show),
        )
        .route("/process/session/{session}/exec", post(session::start))
        .route(
            "/process/session/{session}/command/{command}",
            get(session::command),
        )
        .route(
            "/process/session/{session}/command/{command}/logs",
            get(session::logs),
        )
        .route("/process/pty", post(terminal::open))
        .route("/process/pty/{terminal}", delete(terminal::end))
        .route("/process/pty/{terminal}/connect", get(terminal::connect))
        .route("/files", get(files::list).delete(files::delete))
        .route("/files/folder", post(files::folder))
        .route("/files/info", get(files::info))
        .route("/files/bulk-upload", post(files::upload))
        .route("/files/bulk-download", post(files::download_all))
        .route("/files/download", get(files::download))
        .route("/user-home-dir", get(home))
        .route("/work-dir", get(home));
    Router::new().nest("/toolbox/{id}", toolbox)
}

async fn execute(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Json(wanted): Json<Value>,
) -> Result<Json<Value>, Refusal> {
    let room = shared.room(&id)?;
    let command = wanted["command"].as_str().unwrap_or_default();
    let limit = Duration::from_secs(wanted["timeout"].as_u64().unwrap_or(10));
    let variables = wanted["envs"].as_object().into_iter().flatten();
    let variables: Vec<String> = variables
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    let mut args = vec![wanted["cwd"].as_str().unwrap_or("."), command];
    args.extend(variables.iter().map(String::as_str));
    let ended = tokio::time::timeout(limit, room.script(EXECUTE, &args, b"")).await;
    let ended = ended.map_err(|_| Refusal(408, "command execution timeout".to_owned()))?;
    Ok(Json(
        json!({ "exitCode": ended.code, "result": String::from_utf8_lossy(&ended.output) }),
    ))
}

async fn home(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Json<Value>, Refusal> {
    let ended = shared.room(&id)?.script("printf %s \"$HOME\"", &[], b"").await;
    Ok(Json(json!({ "dir": String::from_utf8_lossy(&ended.output) })))
}
