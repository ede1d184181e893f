//! The pages that are not about one run.

use axum::response::Response;
use serde_json::Value;

use super::client::{ApiClient, PageError};

/// The task that a form begins with.
const STARTER: &str = include_str!("../../templates/starter/ralph_task.md");

/// How many runs the overview shows of one page of the list.
const SHOWN: usize = 200;

/// The groups of the overview, and the states of their runs.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Needs you", &["paused", "failed", "broken", "interrupted"]),
    ("Running", &["running"]),
    ("Queued", &["queued"]),
    ("Done", &["done", "stopped"]),
];

/// All runs, by what they need.
pub(super) async fn overview(client: &ApiClient, query: &str) -> Result<Response, PageError> {
    let list = client.get(&format!("/api/runs?limit={SHOWN}&{query}")).await?;
    let runs = list["runs"].as_array().cloned().unwrap_or_default();
    let groups: Vec<(&str, Vec<&Value>)> = GROUPS
        .iter()
        .map(|(name, states)| {
            let is_in = |run: &&Value| states.contains(&group_state(run));
            (*name, runs.iter().filter(is_in).collect())
        })
        .collect();
    let page = client.page("overview.html", "Runs").await?;
    page.with("groups", groups).with("next", &list["next"]).respond()
}

/// The state by which a run is grouped: one that waits in the queue has no other state yet.
fn group_state(run: &Value) -> &str {
    match run.get("queue").and_then(Value::as_str) {
        Some("queued") => "queued",
        _ => run["state"].as_str().unwrap_or_default(),
    }
}

/// A form for a new run.
pub(super) async fn new_run(client: &ApiClient) -> Result<Response, PageError> {
    let models = client.get("/api/models").await?;
    let page = client.page("new.html", "New run").await?;
    page.with("models", &models["models"])
        .with("starter", STARTER)
        .respond()
}

/// Which credentials are stored.
pub(super) async fn credentials(client: &ApiClient) -> Result<Response, PageError> {
    let credentials = client.get("/api/credentials").await?;
    let page = client.page("credentials.html", "Credentials").await?;
    page.with("credentials", &credentials["credentials"]).respond()
}

/// The images of this host. Without an engine the page says so.
pub(super) async fn images(client: &ApiClient) -> Result<Response, PageError> {
    let page = client.page("images.html", "Images").await?;
    let page = match client.get("/api/images").await {
        Ok(list) => page.with("images", &list["images"]).with("problem", ()),
        Err(error) => page.with("images", ()).with("problem", error.problem()),
    };
    page.respond()
}

/// The workers that have runs.
pub(super) async fn workers(client: &ApiClient) -> Result<Response, PageError> {
    let list = client.get("/api/workers").await?;
    let page = client.page("workers.html", "Workers").await?;
    page.with("workers", &list["workers"]).respond()
}
