//! Changes of runs and of their files, and the sandboxes that they work in.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assembly::{DashboardMode, ImageOverview, InterventionStatus, RunSandbox, RunUpdate};
use crate::state::HandFile;
use crate::store::ClaimedRun;

use super::extract::{JsonBody, NamedRun, Parameters};
use super::operation::require_mode;
use super::problem::Problem;
use super::{Api, Caller};

/// What to change. What is left out stays.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunChanges {
    /// Another text of the task.
    #[serde(default)]
    task: Option<String>,
    /// Another model profile.
    #[serde(default)]
    profile: Option<String>,
    /// More hosts that the sandbox may reach, each as `HOST[:PORT]`.
    #[serde(default)]
    hosts: Vec<String>,
}

/// What was asked of a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct RequestList {
    /// The requests, in order.
    requests: Vec<InterventionStatus>,
}

pub(super) async fn update(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    JsonBody(changes): JsonBody<RunChanges>,
) -> Result<(StatusCode, Json<RequestList>), Problem> {
    let control = api.changing_control(&caller, &run).await?;
    let update = RunUpdate {
        task: changes.task,
        profile: changes.profile,
        hosts: changes.hosts,
    };
    let requests = control.update(&run, update).await?;
    let requests = requests.iter().map(InterventionStatus::pending).collect();
    Ok((StatusCode::ACCEPTED, Json(RequestList { requests })))
}

/// A file of a run with its new text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenFile {
    /// `ralph_task.md`, `.ralph/guardrails.md` or `.ralph/notes.md`.
    path: String,
    /// The whole text. That of a file below `.ralph/` begins with what is there.
    text: String,
}

pub(super) async fn write_file(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    JsonBody(file): JsonBody<WrittenFile>,
) -> Result<(StatusCode, Json<InterventionStatus>), Problem> {
    if file.path.ends_with(HandFile::Notes.name()) {
        require_mode(api.settings.mode, DashboardMode::Guided)?;
    }
    let control = api.changing_control(&caller, &run).await?;
    let request = control.write_file(&run, &file.path, &file.text).await?;
    Ok((StatusCode::ACCEPTED, Json(InterventionStatus::pending(&request))))
}

pub(super) async fn sandbox(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
) -> Result<Json<RunSandbox>, Problem> {
    Ok(Json(api.control(&caller).sandbox(&run).await?))
}

/// Which port.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PortChoice {
    /// The port inside the sandbox.
    #[schemars(range(min = 1))]
    port: u16,
}

/// Where a port of a sandbox can be opened.
#[derive(Serialize, JsonSchema)]
pub(super) struct PreviewLink {
    /// The URL.
    url: String,
}

pub(super) async fn preview(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    Parameters(choice): Parameters<PortChoice>,
) -> Result<Json<PreviewLink>, Problem> {
    let url = api.control(&caller).preview(&run, choice.port).await?;
    Ok(Json(PreviewLink { url }))
}

/// The images of the host.
#[derive(Serialize, JsonSchema)]
pub(super) struct ImageList {
    /// Those that ralph built or pulled, by tag; `null` if the container engine cannot be asked.
    images: Option<Vec<ImageOverview>>,
    /// Why the engine cannot be asked. A host that runs no containers has none.
    engine_problem: Option<EngineProblem>,
}

/// Why the container engine cannot be asked.
#[derive(Serialize, JsonSchema)]
pub(super) struct EngineProblem {
    /// What is wrong.
    detail: String,
    /// What to do.
    hint: Option<String>,
}

pub(super) async fn images(State(api): State<Arc<Api>>) -> Json<ImageList> {
    let list = match ImageOverview::all(&api.surroundings).await {
        Ok(images) => ImageList {
            images: Some(images),
            engine_problem: None,
        },
        Err(error) => ImageList {
            images: None,
            engine_problem: Some(EngineProblem {
                detail: error.to_string(),
                hint: error.hint().map(str::to_owned),
            }),
        },
    };
    Json(list)
}

/// The workers that have runs. One without a run is not known.
#[derive(Serialize, JsonSchema)]
pub(super) struct WorkerList {
    /// The workers, by name.
    workers: Vec<WorkerOverview>,
}

/// A worker.
#[derive(Serialize, JsonSchema)]
struct WorkerOverview {
    /// Its name: host and process.
    name: String,
    /// The runs that it has claimed.
    runs: Vec<WorkerClaim>,
}

/// A run that a worker has claimed.
#[derive(Serialize, JsonSchema)]
struct WorkerClaim {
    /// The run.
    run: String,
    /// The number of this attempt, from 1.
    attempt: u32,
    /// How long its lease lasts without a renewal; negative after its end.
    lease_seconds: f64,
}

pub(super) async fn workers(State(api): State<Arc<Api>>) -> Result<Json<WorkerList>, Problem> {
    let mut workers: BTreeMap<String, Vec<WorkerClaim>> = BTreeMap::new();
    for ClaimedRun {
        run,
        worker,
        attempt,
        lease_ms,
    } in api.store.claimed_runs().await?
    {
        #[expect(clippy::cast_precision_loss, reason = "leases last seconds")]
        let lease_seconds = lease_ms as f64 / 1000.0;
        workers.entry(worker).or_default().push(WorkerClaim {
            run: run.to_string(),
            attempt,
            lease_seconds,
        });
    }
    let workers = workers
        .into_iter()
        .map(|(name, runs)| WorkerOverview { name, runs });
    Ok(Json(WorkerList {
        workers: workers.collect(),
    }))
}
