//! The vault: credentials for which sandboxes have placeholders.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::control::{Answer, NOW};
use super::{Refusal, Shared};

/// A credential. No response contains its value.
pub struct Kept {
    json: Value,
}

impl Kept {
    pub fn name(&self) -> String {
        self.json["name"].as_str().unwrap().to_owned()
    }
}

pub fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/secret", post(add))
        .route("/api/secret/paginated", get(list))
        .route("/api/secret/{id}", patch(change).delete(remove))
}

async fn add(State(shared): State<Arc<Shared>>, Json(new): Json<Value>) -> Result<Response, Refusal> {
    let name = new["name"].as_str().unwrap_or_default().to_owned();
    let may_be = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(may_be) {
        return Err(Refusal(
            400,
            "name must hold letters, digits, hyphens and underscores".to_owned(),
        ));
    }
    let mut vault = shared.vault.lock().unwrap();
    if vault.values().any(|kept| kept.name() == name) {
        return Err(Refusal(409, format!("Secret with name {name} already exists")));
    }
    let id = format!("{:032x}", fastrand::u128(..));
    let json = json!({
        "id": id, "name": name, "placeholder": format!("dtn_secret_{:012x}", fastrand::u64(..) >> 16),
        "hosts": if new["hosts"].is_null() { json!([]) } else { new["hosts"].clone() },
        "createdAt": NOW, "updatedAt": NOW,
    });
    vault.insert(id, Kept { json: json.clone() });
    Ok((StatusCode::CREATED, Json(json)).into_response())
}

async fn list(State(shared): State<Arc<Shared>>, Query(query): Query<HashMap<String, String>>) -> Answer {
    let part = query.get("name").cloned().unwrap_or_default();
    let vault = shared.vault.lock().unwrap();
    let items: Vec<Value> = vault
        .values()
        .filter(|kept| kept.name().contains(&part))
        .map(|kept| kept.json.clone())
        .collect();
    Ok(Json(
        json!({ "total": items.len(), "items": items, "nextCursor": null }),
    ))
}

async fn change(State(shared): State<Arc<Shared>>, Path(id): Path<String>, Json(new): Json<Value>) -> Answer {
    let mut vault = shared.vault.lock().unwrap();
    let kept = vault.get_mut(&id).ok_or_else(|| unknown(&id))?;
    if !new["hosts"].is_null() {
        kept.json["hosts"] = new["hosts"].clone();
    }
    Ok(Json(kept.json.clone()))
}

async fn remove(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    let removed = shared.vault.lock().unwrap().remove(&id);
    removed
        .map(|_| StatusCode::NO_CONTENT)
        .ok_or_else(|| unknown(&id))
}

fn unknown(id: &str) -> Refusal {
    Refusal(404, format!("Secret with ID {id} not found"))
}

impl Shared {
    /// The variables of a new sandbox, with placeholders for its credentials.
    pub fn placeholders(&self, new: &Value) -> Result<Vec<String>, Refusal> {
        let vault = self.vault.lock().unwrap();
        let asked = new["secrets"].as_array().into_iter().flatten();
        let pairs = asked.flat_map(|one| one.as_object().into_iter().flatten());
        pairs
            .map(|(variable, name)| {
                let kept = vault.values().find(|kept| kept.json["name"] == *name);
                let kept = kept.ok_or_else(|| Refusal(400, format!("Secret {name} not found")))?;
                Ok(format!(
                    "{variable}={}",
                    kept.json["placeholder"].as_str().unwrap()
                ))
            })
            .collect()
    }
}
