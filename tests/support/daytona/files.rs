//! The file calls of the toolbox.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Multipart, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{Refusal, Shared};

type Pairs = Query<HashMap<String, String>>;

/// The output format of `find`. Names may contain anything but a slash and a zero.
const FORMAT: &str = "-printf '%y %s %m %T@ %f\\0'";
const UPLOAD: &str = "mkdir -p -- \"$(dirname -- \"$1\")\" && cat > \"$1\"";
const DOWNLOAD: &str = "[ -f \"$1\" ] || exit 2; cat -- \"$1\"";
const DELETE: &str =
    "[ -e \"$1\" ] || exit 2; if [ \"$2\" = true ]; then rm -r -- \"$1\"; else rm -- \"$1\"; fi";
/// The boundary between the files of a multipart response.
const BOUNDARY: &str = "DAYTONA-FILE-BOUNDARY";

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Pairs,
) -> Result<Json<Value>, Refusal> {
    let script = format!("[ -d \"$1\" ] || exit 2; find \"$1\"/ -mindepth 1 -maxdepth 1 {FORMAT}");
    let path = query.get("path").map_or(".", String::as_str);
    Ok(Json(json!(entries(&shared, &id, (&script, path)).await?)))
}

pub async fn info(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Pairs,
) -> Result<Json<Value>, Refusal> {
    let script = format!("[ -e \"$1\" ] || exit 2; find \"$1\" -maxdepth 0 {FORMAT}");
    let mut found = entries(&shared, &id, (&script, &query["path"])).await?;
    Ok(Json(found.remove(0)))
}

pub async fn folder(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Pairs,
) -> Result<StatusCode, Refusal> {
    let (path, mode) = (&query["path"], &query["mode"]);
    done(&shared, &id, ("mkdir -p -m \"$2\" -- \"$1\"", &[path, mode])).await?;
    Ok(StatusCode::CREATED)
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Pairs,
) -> Result<StatusCode, Refusal> {
    let recursive = query.get("recursive").map_or("false", String::as_str);
    done(&shared, &id, (DELETE, &[&query["path"], recursive])).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn upload(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    mut form: Multipart,
) -> Result<StatusCode, Refusal> {
    let room = shared.room(&id)?;
    let wrong = |error: &dyn ToString| Refusal(400, error.to_string());
    let mut paths = HashMap::new();
    while let Some(field) = form.next_field().await.map_err(|error| wrong(&error))? {
        let name = field.name().unwrap_or_default().to_owned();
        if let Some(file) = name.strip_suffix(".path") {
            paths.insert(file.to_owned(), field.text().await.unwrap());
            continue;
        }
        let path = name.strip_suffix(".file").and_then(|file| paths.get(file));
        let path = path.ok_or_else(|| wrong(&format!("no field {name:?}")))?.clone();
        let bytes = field.bytes().await.map_err(|error| wrong(&error))?;
        let ended = room.script(UPLOAD, &[&path], &bytes).await;
        if ended.code != 0 {
            return Err(wrong(&String::from_utf8_lossy(&ended.output)));
        }
    }
    Ok(StatusCode::OK)
}

pub async fn download(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Pairs,
) -> Result<Response, Refusal> {
    let bytes = done(&shared, &id, (DOWNLOAD, &[&query["path"]])).await?;
    Ok(([(CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

pub async fn download_all(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Json(wanted): Json<Value>,
) -> Result<Response, Refusal> {
    let mut body = Vec::new();
    for path in wanted["paths"].as_array().into_iter().flatten() {
        let path = path.as_str().unwrap_or_default();
        let bytes = done(&shared, &id, (DOWNLOAD, &[path])).await?;
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{path}\"\r\n\
             Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
            bytes.len()
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    Ok(([(CONTENT_TYPE, kind)], body).into_response())
}

/// The output of a script. If it fails, the file does not exist.
async fn done(shared: &Shared, id: &str, (script, args): (&str, &[&str])) -> Result<Vec<u8>, Refusal> {
    let ended = shared.room(id)?.script(script, args, b"").await;
    match ended.code {
        0 => Ok(ended.output),
        _ => Err(Refusal(404, "no such file or directory".to_owned())),
    }
}

async fn entries(shared: &Shared, id: &str, (script, path): (&str, &str)) -> Result<Vec<Value>, Refusal> {
    let printed = done(shared, id, (script, &[path])).await?;
    let text = String::from_utf8_lossy(&printed).into_owned();
    Ok(text.split_terminator('\0').map(entry).collect())
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
