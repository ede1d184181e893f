//! Snapshots: registered images, and images that the fake builds from a Dockerfile.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::control::{Answer, NOW};
use super::{Refusal, Shared};

pub fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/snapshots", post(register).get(list))
        .route("/api/snapshots/{id}", get(snapshot).delete(remove))
}

async fn register(State(shared): State<Arc<Shared>>, Json(new): Json<Value>) -> Answer {
    let name = new["name"].as_str().unwrap_or_default().to_owned();
    if shared.snapshots.lock().unwrap().contains_key(&name) {
        return Err(Refusal(409, format!("Snapshot with name {name} already exists")));
    }
    let (image, state, reason) = shared.image_of(&new).await?;
    let usual = |field: &str, usual: u32| {
        if new[field].is_null() {
            json!(usual)
        } else {
            new[field].clone()
        }
    };
    let mut snapshot = json!({
        "id": format!("{:032x}", fastrand::u128(..)), "general": false, "name": name, "imageName": image,
        "state": state, "errorReason": reason,
        "size": 0.2, "entrypoint": [], "cpu": usual("cpu", 1), "gpu": 0, "mem": usual("memory", 1), "disk": usual("disk", 3),
        "createdAt": NOW, "updatedAt": NOW, "lastUsedAt": null,
        "sourceSandboxId": null,
    });
    if let Some(dockerfile) = new["buildInfo"]["dockerfileContent"].as_str() {
        let contexts = new["buildInfo"]
            .get("contextHashes")
            .cloned()
            .unwrap_or(json!([]));
        snapshot["buildInfo"] = json!({
            "dockerfileContent": dockerfile, "contextHashes": contexts, "createdAt": NOW, "updatedAt": NOW, "snapshotRef": image,
        });
    }
    let mut snapshots = shared.snapshots.lock().unwrap();
    snapshots.insert(name, snapshot.clone());
    Ok(Json(snapshot))
}

/// All snapshots, by name, in pages.
async fn list(State(shared): State<Arc<Shared>>, Query(query): Query<HashMap<String, String>>) -> Answer {
    let number = |name: &str, usual: usize| {
        let given = query.get(name).map(|text| text.parse::<usize>());
        match given.transpose() {
            Ok(Some(0)) | Err(_) => Err(Refusal(400, format!("{name} must not be less than 1"))),
            Ok(given) => Ok(given.unwrap_or(usual)),
        }
    };
    let (page, limit) = (number("page", 1)?, number("limit", 100)?);
    let snapshots = shared.snapshots.lock().unwrap();
    let mut all: Vec<Value> = snapshots.values().cloned().collect();
    all.sort_by_key(|one| one["name"].as_str().unwrap_or_default().to_owned());
    let items: Vec<&Value> = all.iter().skip((page - 1) * limit).take(limit).collect();
    let pages = all.len().div_ceil(limit);
    Ok(Json(
        json!({ "items": items, "total": all.len(), "page": page, "totalPages": pages }),
    ))
}

/// Moves on with each look: what is being made becomes active or fails, what is being removed is gone.
async fn snapshot(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    let mut snapshots = shared.snapshots.lock().unwrap();
    let known = snapshots
        .iter_mut()
        .find(|(name, one)| **name == id || one["id"] == id.as_str());
    let Some((name, found)) = known else {
        return Err(Refusal(404, format!("Snapshot with ID or name {id} not found")));
    };
    let (name, seen) = (name.clone(), found.clone());
    match found["state"].as_str() {
        Some("pulling") => found["state"] = json!("active"),
        Some("pending") => found["state"] = json!("building"),
        Some("building") if found["errorReason"].is_null() => found["state"] = json!("active"),
        Some("building") => found["state"] = json!("build_failed"),
        Some("removing") => drop(snapshots.remove(&name)),
        _ => {}
    }
    Ok(Json(seen))
}

/// Only an id names a snapshot here, and those of Daytona itself stay.
async fn remove(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<(), Refusal> {
    let mut snapshots = shared.snapshots.lock().unwrap();
    let known = snapshots.values_mut().find(|one| one["id"] == id.as_str());
    let Some(found) = known else {
        return Err(Refusal(404, format!("Snapshot with ID {id} not found")));
    };
    if found["general"] == true {
        return Err(Refusal(403, "You cannot delete a general snapshot".to_owned()));
    }
    found["state"] = json!("removing");
    Ok(())
}

impl Shared {
    /// The image of a new snapshot, its first state, and why it will fail, if it will.
    async fn image_of(&self, new: &Value) -> Result<(String, &'static str, Value), Refusal> {
        let refused = |message: &str| Err(Refusal(400, message.to_owned()));
        match (&new["imageName"], &new["buildInfo"]["dockerfileContent"]) {
            (Value::String(image), Value::Null) => {
                if image.ends_with(":latest") || !image.contains([':', '@']) {
                    return refused("Image name must include a tag other than latest, or a digest");
                }
                if self.ground.has(image).await {
                    return Ok((image.clone(), "pulling", Value::Null));
                }
                let reason = json!(format!("no such image: {image}"));
                Ok((image.clone(), "error", reason))
            }
            (Value::Null, Value::String(dockerfile)) => {
                let contexts = self.contexts(new)?;
                match self.ground.build(dockerfile, &contexts).await {
                    Ok(image) => Ok((image, "pending", Value::Null)),
                    Err(reason) => Ok((String::new(), "pending", json!(reason))),
                }
            }
            _ => refused("Must include either an image name or build info"),
        }
    }

    /// The archives with the files of a build.
    pub fn contexts(&self, new: &Value) -> Result<Vec<Bytes>, Refusal> {
        let hashes = new["buildInfo"]["contextHashes"].as_array();
        let hashes: Vec<&str> = hashes.into_iter().flatten().filter_map(Value::as_str).collect();
        self.store.contexts(&hashes)
    }

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
