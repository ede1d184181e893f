//! Snapshots: registered images.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::control::{Answer, NOW};
use super::{Refusal, Shared};

pub fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/snapshots", post(register))
        .route("/api/snapshots/{id}", get(snapshot))
}

async fn register(State(shared): State<Arc<Shared>>, Json(new): Json<Value>) -> Answer {
    let name = new["name"].as_str().unwrap_or_default().to_owned();
    let image = new["imageName"].as_str().unwrap_or_default().to_owned();
    if image.ends_with(":latest") || !image.contains([':', '@']) {
        let message = "Image name must include a tag other than latest, or a digest";
        return Err(Refusal(400, message.to_owned()));
    }
    let is_there = shared.ground.has(&image).await;
    let usual = |field: &str, usual: u32| {
        if new[field].is_null() {
            json!(usual)
        } else {
            new[field].clone()
        }
    };
    let snapshot = json!({
        "id": format!("{:032x}", fastrand::u128(..)), "general": false, "name": name, "imageName": image,
        "state": if is_there { "pulling" } else { "error" },
        "errorReason": if is_there { Value::Null } else { json!(format!("no such image: {image}")) },
        "size": 0.2, "entrypoint": [], "cpu": usual("cpu", 1), "gpu": 0, "mem": usual("memory", 1), "disk": usual("disk", 3),
        "createdAt": NOW, "updatedAt": NOW, "lastUsedAt": null,
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
    let known = snapshots
        .iter_mut()
        .find(|(name, one)| **name == id || one["id"] == id.as_str());
    let Some((_, found)) = known else {
        return Err(Refusal(404, format!("Snapshot with ID or name {id} not found")));
    };
    let seen = found.clone();
    if found["state"] == "pulling" {
        found["state"] = json!("active");
    }
    Ok(Json(seen))
}

impl Shared {
    /// A snapshot from which sandboxes can start.
    pub fn active_snapshot(&self, name: &str) -> Result<Value, Refusal> {
        let snapshots = self.snapshots.lock().unwrap();
        match snapshots.get(name) {
            Some(found) if found["state"] == "active" => Ok(found.clone()),
            Some(_) => Err(Refusal(400, format!("Snapshot {name} is not active"))),
            None => Err(Refusal(
                400,
                format!("Snapshot {name} not found. Did you add it through the Dashboard?"),
            )),
        }
    }
}
