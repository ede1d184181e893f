//! The control plane: sandboxes and snapshots, their states and errors.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::room::Room;
use super::{Refusal, Remote, Shared, Tier};

pub type Answer = Result<Json<Value>, Refusal>;
type Pairs = Query<HashMap<String, String>>;

/// The default snapshot.
const USUAL_SNAPSHOT: &str = "daytonaio/sandbox:0.5.0";
/// All timestamps are the same.
pub const NOW: &str = "2026-11-15T00:00:00.000Z";

/// How many polls a new sandbox or snapshot takes until it is ready.
const LOOKS: u32 = 2;

pub fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/sandbox", get(list).post(create))
        .route("/api/sandbox/{id}", get(look).delete(delete))
        .route("/api/sandbox/{id}/labels", put(relabel))
        .route("/api/sandbox/{id}/start", post(start))
        .route("/api/sandbox/{id}/stop", post(stop))
        .route("/api/sandbox/{id}/last-activity", post(touch))
        .route("/api/sandbox/{id}/ports/{port}/preview-url", get(preview))
        .route("/api/sandbox/{id}/autostop/{minutes}", post(auto_stop))
}

async fn create(State(shared): State<Arc<Shared>>, Json(new): Json<Value>) -> Answer {
    let id = format!("{:032x}", fastrand::u128(..));
    let name = new["name"].as_str().unwrap_or(&id).to_owned();
    if shared.key_of(&name).is_some() {
        return Err(Refusal(409, format!("Sandbox with name {name} already exists")));
    }
    check_network(&new, *shared.tier.lock().unwrap())?;
    if new.get("cpu").is_some() && new.get("snapshot").is_some() {
        let message = "Cannot specify Sandbox resources when using a snapshot";
        return Err(Refusal(400, message.to_owned()));
    }
    let (image, size, state) = shared.ground_of(&new).await?;
    let mut pairs: Vec<String> = new["env"].as_object().into_iter().flatten().map(pair).collect();
    pairs.extend(shared.placeholders(&new)?);
    let room = match &image {
        Ok(image) => shared.ground.room(image, &pairs).await,
        Err(_) => Ok(Room::Nowhere),
    };
    let room = room.map_err(|error| Refusal(500, error))?;
    let or = |field: &str, usual: Value| {
        if new[field].is_null() {
            usual
        } else {
            new[field].clone()
        }
    };
    let mut json = json!({
        "id": id, "organizationId": "00000000-0000-0000-0000-000000000001", "name": name,
        "snapshot": or("snapshot", json!(USUAL_SNAPSHOT)), "user": or("user", json!("daytona")),
        "env": or("env", json!({})), "labels": or("labels", json!({})), "public": or("public", json!(false)),
        "state": state, "networkBlockAll": or("networkBlockAll", json!(false)), "target": or("target", json!("us")),
        "cpu": size["cpu"], "gpu": 0, "memory": size["memory"], "disk": size["disk"], "kvm": false,
        "desiredState": "started", "autoStopInterval": or("autoStopInterval", json!(15)),
        "autoArchiveInterval": 10080, "autoDeleteInterval": or("autoDeleteInterval", json!(-1)), "volumes": [],
        "createdAt": NOW, "updatedAt": NOW, "sandboxClass": "container", "daemonVersion": "0.190.0", "runnerId": "r1",
        "toolboxProxyUrl": *shared.toolboxes.lock().unwrap(), "recoverable": false,
    });
    for field in ["networkAllowList", "domainAllowList"] {
        if let Some(list) = new.get(field) {
            json[field] = list.clone();
        }
    }
    if let Err(reason) = image {
        json["errorReason"] = json!(reason);
    }
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
        .map(|one| item(&one.json))
        .collect();
    items.sort_by_key(|one| one["id"].as_str().unwrap().to_owned());
    let next = (items.len() > from + limit).then(|| (from + limit).to_string());
    let items: Vec<Value> = items.into_iter().skip(from).take(limit).collect();
    Ok(Json(json!({ "items": items, "nextCursor": next })))
}

/// A sandbox in a list, which has fewer fields.
fn item(sandbox: &Value) -> Value {
    let fields = sandbox.as_object().unwrap().iter();
    let listed = fields.filter(|(name, _)| !["env", "volumes"].contains(&name.as_str()));
    Value::Object(
        listed
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

async fn look(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    let id = shared.known(&id)?;
    let mut sandboxes = shared.sandboxes.lock().unwrap();
    let remote = sandboxes.get_mut(&id).unwrap();
    remote.looks_left = remote.looks_left.saturating_sub(1);
    if remote.looks_left == 0 {
        let arrived = match remote.json["state"].as_str() {
            Some("building_snapshot") if !remote.json["errorReason"].is_null() => "build_failed",
            Some("creating" | "starting" | "building_snapshot") => "started",
            Some("pending_build") => "building_snapshot",
            Some("stopping") => "stopped",
            Some(state) => state,
            None => "unknown",
        };
        if arrived == "building_snapshot" {
            remote.looks_left = LOOKS;
        }
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

async fn auto_stop(State(shared): State<Arc<Shared>>, Path((id, minutes)): Path<(String, u32)>) -> Answer {
    let id = shared.known(&id)?;
    let mut sandboxes = shared.sandboxes.lock().unwrap();
    let remote = sandboxes.get_mut(&id).unwrap();
    remote.json["autoStopInterval"] = json!(minutes);
    Ok(Json(remote.json.clone()))
}

async fn preview(State(shared): State<Arc<Shared>>, Path((id, port)): Path<(String, u16)>) -> Answer {
    let id = shared.known(&id)?;
    Ok(Json(json!({
        "sandboxId": id, "url": format!("https://{port}-{id}.proxy.example.invalid"), "token": "tok",
    })))
}

impl Shared {
    /// What a new sandbox starts from: an image or its build error, the resources, and the first state.
    async fn ground_of(&self, new: &Value) -> Result<(Result<String, String>, Value, &'static str), Refusal> {
        let usual = |field: &str, usual: u32| {
            if new[field].is_null() {
                json!(usual)
            } else {
                new[field].clone()
            }
        };
        if let Some(dockerfile) = new["buildInfo"]["dockerfileContent"].as_str() {
            let contexts = self.contexts(new)?;
            let built = self.ground.build(dockerfile, &contexts).await;
            let size =
                json!({ "cpu": usual("cpu", 1), "memory": usual("memory", 1), "disk": usual("disk", 3) });
            return Ok((built, size, "pending_build"));
        }
        let name = new["snapshot"].as_str().unwrap_or(USUAL_SNAPSHOT);
        let snapshot = self.active_snapshot(name)?;
        let size = json!({ "cpu": snapshot["cpu"], "memory": snapshot["mem"], "disk": snapshot["disk"] });
        let image = snapshot["imageName"].as_str().unwrap().to_owned();
        Ok((Ok(image), size, "creating"))
    }

    /// The id of the sandbox with this id or name.
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
}
