//! The pages that are not about one run.

use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::Value;

use crate::text::url_part;

use super::client::{ApiClient, PageError, parameters};

/// The task that a form begins with.
const STARTER: &str = include_str!("../../templates/starter/ralph_task.md");

/// How many runs of one state the overview shows.
const SHOWN: usize = 50;

/// The groups of the overview, and what the list of runs is asked for each.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Needs you",
        &[
            "state=paused",
            "state=failed",
            "state=broken",
            "state=interrupted",
        ],
    ),
    ("Running", &["state=running"]),
    ("Queued", &["queue=queued"]),
    ("Done", &["state=done", "state=stopped"]),
];

/// What a person searches for.
#[derive(Deserialize)]
struct Search {
    text: Option<String>,
}

/// All runs, by what they need.
pub(super) async fn overview(client: &ApiClient, query: &str) -> Result<Response, PageError> {
    let session = client.get("/api/session").await?;
    if let Some(run) = session["run"].as_str() {
        return Ok(Redirect::to(&format!("/runs/{run}")).into_response());
    }
    let text = parameters::<Search>(query)
        .and_then(|search| search.text)
        .unwrap_or_default();
    let mut groups = Vec::new();
    let mut is_cut = false;
    for (name, queries) in GROUPS {
        let mut runs: Vec<Value> = Vec::new();
        for query in queries {
            let path = format!("/api/runs?limit={SHOWN}&{query}&text={}", url_part(&text));
            let mut list = client.get(&path).await?;
            is_cut |= !list["next"].is_null();
            if let Some(listed) = list["runs"].as_array_mut() {
                runs.append(listed);
            }
        }
        // A run that waits in the queue has no other state yet.
        runs.retain(|run| name == "Queued" || run["queue"] != "queued");
        groups.push((name, runs));
    }
    let page = client.page("overview.html", "Runs").await?;
    page.with("groups", groups)
        .with("is_cut", is_cut)
        .with("text", text)
        .respond()
}

/// A form for a new run.
pub(super) async fn new_run(client: &ApiClient) -> Result<Response, PageError> {
    let models = client.get("/api/models").await?;
    let page = client.page("new.html", "New run").await?;
    page.with("models", &models["models"])
        .with("starter", STARTER)
        .respond()
}

/// The configuration, and where each value comes from.
pub(super) async fn settings(client: &ApiClient) -> Result<Response, PageError> {
    let list = client.get("/api/settings").await?;
    let page = client.page("settings.html", "Settings").await?;
    page.with("settings", &list["settings"]).respond()
}

/// Which credentials are stored.
pub(super) async fn credentials(client: &ApiClient) -> Result<Response, PageError> {
    let credentials = client.get("/api/credentials").await?;
    let page = client.page("credentials.html", "Credentials").await?;
    page.with("credentials", &credentials["credentials"]).respond()
}

/// The images of this host. Without an engine the page says so.
pub(super) async fn images(client: &ApiClient) -> Result<Response, PageError> {
    let list = client.get("/api/images").await?;
    let page = client.page("images.html", "Images").await?;
    page.with("images", &list["images"])
        .with("problem", &list["engine_problem"])
        .respond()
}

/// The workers that have runs.
pub(super) async fn workers(client: &ApiClient) -> Result<Response, PageError> {
    let list = client.get("/api/workers").await?;
    let page = client.page("workers.html", "Workers").await?;
    page.with("workers", &list["workers"]).respond()
}
