//! The control plane: sandboxes and snapshots, their states, and what is refused.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bollard::{ClientVersion, Docker};
use serde_json::{Value, json};

use super::room::Room;
use super::{Refusal, Remote, Shared, Tier};

type Answer = Result<Json<Value>, Refusal>;
type Pairs = Query<HashMap<String, String>>;

/// How often something new is looked at before it is there.
const LOOKS: u32 = 2;

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/sandbox", get(list).post(create))
        .route("/api/sandbox/{id}", get(look).delete(delete))
        .route("/api/sandbox/{id}/labels", put(relabel))
        .route("/api/sandbox/{id}/start", post(start))
        .route("/api/sandbox/{id}/stop", post(stop))
        .route("/api/sandbox/{id}/last-activity", post(touch))
        .route("/api/sandbox/{id}/ports/{port}/preview-url", get(preview))
        .route("/api/snapshots", post(register))
        .route("/api/snapshots/{id}", get(snapshot))
}

async fn create(State(shared): State<Arc<Shared>>, Json(new): Json<Value>) -> Answer {
    let name = new["name"].as_str().unwrap_or_default().to_owned();
    if shared.key_of(&name).is_some() {
        return Err(Refusal(409, format!("Sandbox with name {name} already exists")));
    }
    check_network(&new, *shared.tier.lock().unwrap())?;
    if new.get("cpu").is_some() && new.get("snapshot").is_some() {
        let message = "Cannot specify Sandbox resources when using a snapshot";
        return Err(Refusal(400, message.to_owned()));
    }
    let snapshot = new["snapshot"]
        .as_str()
        .unwrap_or("daytonaio/sandbox:0.5.0")
        .to_owned();
    let image = shared.image_of(&snapshot)?;
    let pairs: Vec<String> = new["env"].as_object().into_iter().flatten().map(pair).collect();
    let room = Room::make(shared.docker(), &image, &pairs).await;
    let room = room.map_err(|error| Refusal(500, error))?;
    let id = format!("{:032x}", fastrand::u128(..));
    let address = shared.address.lock().unwrap().unwrap();
    let json = json!({
        "id": id, "organizationId": "00000000-0000-0000-0000-000000000001", "name": name, "snapshot": snapshot,
        "user": "daytona", "env": new["env"], "labels": new["labels"], "public": false, "state": "creating",
        "networkBlockAll": new["networkBlockAll"].as_bool().unwrap_or(false), "target": "us", "cpu": 1, "gpu": 0,
        "memory": 1, "disk": 3, "desiredState": "started", "autoStopInterval": new["autoStopInterval"],
        "autoDeleteInterval": new["autoDeleteInterval"], "volumes": [], "createdAt": "2026-11-15T00:00:00.000Z",
        "updatedAt": "2026-11-15T00:00:00.000Z", "sandboxClass": "container", "daemonVersion": "0.190.0",
        "runnerId": "r1", "toolboxProxyUrl": format!("http://{address}/toolbox"), "recoverable": false,
    });
    let remote = Remote {
        json: json.clone(),
        room,
        looks_left: LOOKS,
    };
    shared.sandboxes.lock().unwrap().insert(id, remote);
    Ok(Json(json))
}

fn pair((name, value): (&String, &Value)) -> String {
    format!("{name}={}", value.as_str().unwrap_or_default())
}

fn check_network(new: &Value, tier: Tier) -> Result<(), Refusal> {
    let restricts = ["networkBlockAll", "networkAllowList", "domainAllowList"]
        .iter()
        .any(|field| new.get(*field).is_some());
    if restricts && tier == Tier::Low {
        let message = "Network access settings cannot be overridden by organizations of this tier";
        return Err(Refusal(400, message.to_owned()));
    }
    let names = new["domainAllowList"].as_str().unwrap_or_default();
    if names.split(',').count() > 10 {
        return Err(Refusal(
            400,
            "domainAllowList must hold at most 10 domains".to_owned(),
        ));
    }
    Ok(())
}

async fn list(State(shared): State<Arc<Shared>>, Query(query): Pairs) -> Answer {
    let wanted: HashMap<String, String> = match query.get("labels") {
        Some(labels) => {
            serde_json::from_str(labels).map_err(|_| Refusal(400, "labels must be JSON".to_owned()))?
        }
        None => HashMap::new(),
    };
    let limit: usize = query.get("limit").map_or(100, |limit| limit.parse().unwrap());
    let from: usize = query.get("cursor").map_or(0, |cursor| cursor.parse().unwrap());
    let mut items: Vec<Value> = shared
        .sandboxes
        .lock()
        .unwrap()
        .values()
        .filter(|one| {
            wanted
                .iter()
                .all(|(name, value)| one.json["labels"][name] == *value)
        })
        .map(|one| one.json.clone())
        .collect();
    items.sort_by_key(|one| one["id"].as_str().unwrap().to_owned());
    let next = (items.len() > from + limit).then(|| (from + limit).to_string());
    let items: Vec<Value> = items.into_iter().skip(from).take(limit).collect();
    Ok(Json(json!({ "items": items, "nextCursor": next })))
}

async fn look(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    let id = shared.known(&id)?;
    let mut sandboxes = shared.sandboxes.lock().unwrap();
    let remote = sandboxes.get_mut(&id).unwrap();
    remote.looks_left = remote.looks_left.saturating_sub(1);
    if remote.looks_left == 0 {
        let arrived = match remote.json["state"].as_str() {
            Some("creating" | "starting") => "started",
            Some("stopping") => "stopped",
            Some(state) => state,
            None => "unknown",
        };
        remote.json["state"] = json!(arrived.to_owned());
    }
    Ok(Json(remote.json.clone()))
}

async fn delete(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    let id = shared.known(&id)?;
    let removed = shared.sandboxes.lock().unwrap().remove(&id);
    let Some(mut remote) = removed else {
        return Err(Refusal(404, format!("Sandbox with ID or name {id} not found")));
    };
    remote.room.remove().await;
    remote.json["state"] = json!("destroying");
    Ok(Json(remote.json))
}

async fn relabel(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Json(new): Json<Value>,
) -> Answer {
    let id = shared.known(&id)?;
    let mut sandboxes = shared.sandboxes.lock().unwrap();
    sandboxes.get_mut(&id).unwrap().json["labels"] = new["labels"].clone();
    Ok(Json(new))
}

async fn start(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    let (json, room) = shared.enter(&id, &["stopped", "archived", "paused"], "starting")?;
    room.start().await;
    Ok(json)
}

async fn stop(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    let (json, room) = shared.enter(&id, &["started"], "stopping")?;
    room.stop().await;
    Ok(json)
}

async fn touch(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    shared.known(&id)?;
    Ok(axum::http::StatusCode::CREATED.into_response())
}

async fn preview(State(shared): State<Arc<Shared>>, Path((id, port)): Path<(String, u16)>) -> Answer {
    let id = shared.known(&id)?;
    Ok(Json(json!({
        "sandboxId": id, "url": format!("https://{port}-{id}.proxy.example.invalid"), "token": "tok",
    })))
}

async fn register(State(shared): State<Arc<Shared>>, Json(new): Json<Value>) -> Answer {
    let name = new["name"].as_str().unwrap_or_default().to_owned();
    let image = new["imageName"].as_str().unwrap_or_default().to_owned();
    if image.ends_with(":latest") || !image.contains([':', '@']) {
        let message = "Image name must include a tag other than latest, or a digest";
        return Err(Refusal(400, message.to_owned()));
    }
    let is_there = shared
        .engine
        .image(&image)
        .await
        .is_ok_and(|found| found.is_some());
    let snapshot = json!({
        "id": format!("{:032x}", fastrand::u128(..)), "general": false, "name": name, "imageName": image,
        "state": if is_there { "pulling" } else { "error" },
        "errorReason": if is_there { Value::Null } else { json!(format!("no such image: {image}")) },
        "size": 0.2, "entrypoint": [], "cpu": new["cpu"], "gpu": 0, "mem": new["memory"], "disk": new["disk"],
        "createdAt": "2026-11-15T00:00:00.000Z", "updatedAt": "2026-11-15T00:00:00.000Z", "lastUsedAt": null,
        "sourceSandboxId": null,
    });
    let mut snapshots = shared.snapshots.lock().unwrap();
    if snapshots.contains_key(&name) {
        return Err(Refusal(409, format!("Snapshot with name {name} already exists")));
    }
    snapshots.insert(name, snapshot.clone());
    Ok(Json(snapshot))
}

async fn snapshot(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    let mut snapshots = shared.snapshots.lock().unwrap();
    let Some(found) = snapshots.get_mut(&id) else {
        return Err(Refusal(404, format!("Snapshot with ID or name {id} not found")));
    };
    let seen = found.clone();
    if found["state"] == "pulling" {
        found["state"] = json!("active");
    }
    Ok(Json(seen))
}

impl Shared {
    fn docker(&self) -> Arc<Docker> {
        let endpoint = self.engine.endpoint().to_string();
        let path = endpoint.trim_start_matches("unix://");
        let version = ClientVersion {
            major_version: 1,
            minor_version: 41,
        };
        Arc::new(Docker::connect_with_unix(path, 600, &version).unwrap())
    }

    /// The id of the sandbox that has this id or name.
    fn key_of(&self, id: &str) -> Option<String> {
        let sandboxes = self.sandboxes.lock().unwrap();
        let found = sandboxes
            .iter()
            .find(|(key, one)| *key == id || one.json["name"] == id);
        found.map(|(key, _)| key.clone())
    }

    fn known(&self, id: &str) -> Result<String, Refusal> {
        let found = self.key_of(id);
        found.ok_or_else(|| Refusal(404, format!("Sandbox with ID or name {id} not found")))
    }

    fn enter(&self, id: &str, from: &[&str], to: &str) -> Result<(Json<Value>, Room), Refusal> {
        let id = self.known(id)?;
        let mut sandboxes = self.sandboxes.lock().unwrap();
        let remote = sandboxes.get_mut(&id).unwrap();
        let state = remote.json["state"].as_str().unwrap_or_default();
        if !from.contains(&state) {
            return Err(Refusal(409, format!("Sandbox is in the state {state}")));
        }
        remote.json["state"] = json!(to);
        remote.looks_left = LOOKS;
        Ok((Json(remote.json.clone()), remote.room.clone()))
    }

    fn image_of(&self, snapshot: &str) -> Result<String, Refusal> {
        let snapshots = self.snapshots.lock().unwrap();
        match snapshots.get(snapshot) {
            Some(found) if found["state"] == "active" => Ok(found["imageName"].as_str().unwrap().to_owned()),
            Some(_) => Err(Refusal(400, format!("Snapshot {snapshot} is not active"))),
            None => Err(Refusal(
                400,
                format!("Snapshot {snapshot} not found. Did you add it through the Dashboard?"),
            )),
        }
    }
}
