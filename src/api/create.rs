//! Creates runs and queues them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assembly::{Ralph, RalphBuilder};
use crate::digest::Digest;
use crate::id::RunId;
use crate::service::{SubmitRequest, SubmittedRun, submit};
use crate::store::{ApiCreation, Label};

use super::extract::{JsonBody, NamedRun};
use super::problem::Problem;
use super::steer::unisolated;
use super::{Api, Caller};

/// The header that makes a repeated creation harmless.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The provider without isolation.
const LOCAL: &str = "local";

/// The longest key.
const LONGEST_KEY: usize = 200;

/// After so many attempts of workers without a result a run waits for a person.
const ATTEMPTS: u32 = 3;

/// The settings that a request may choose, by their names or beginnings. Others decide what the host starts and reads, and
/// where it sends its secrets.
const SETTINGS: [&str; 9] = [
    "agent.name",
    "budget.",
    "default_profile",
    "done.",
    "gutter.",
    "sandbox.enabled",
    "sandbox.resources.",
    "sandbox.type",
    "task.",
];

/// A run to create.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRunRequest {
    /// The text of the task, as in `ralph_task.md`.
    task: String,
    /// A directory of the host with a repository; by default the one that the service was started in.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    repository: Option<PathBuf>,
    /// The address of a repository to clone, in place of a directory.
    #[serde(default)]
    repository_url: Option<String>,
    /// Settings of the configuration, as in `{"sandbox.type": "docker"}`.
    #[serde(default)]
    settings: BTreeMap<String, String>,
    /// Runs with a higher priority are started first.
    #[serde(default)]
    priority: i64,
    /// A script that answers in place of a model, to try things out.
    #[serde(default)]
    script: Option<String>,
}

/// Which workers have the files of a run.
#[derive(Clone, Copy)]
enum RunPlace {
    /// Those on this host.
    ThisHost,
    /// All that reach the address of its repository.
    Anywhere,
}

impl NewRunRequest {
    fn place(&self) -> RunPlace {
        match self.repository_url {
            Some(_) => RunPlace::Anywhere,
            None => RunPlace::ThisHost,
        }
    }
}

/// A run that waits for a worker.
#[derive(Serialize, JsonSchema)]
pub(super) struct QueuedRunId {
    /// Its id.
    run: String,
}

/// Creates a run and queues it.
pub(super) async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    JsonBody(request): JsonBody<NewRunRequest>,
) -> Result<(StatusCode, Json<QueuedRunId>), Problem> {
    let key = match headers.get(IDEMPOTENCY_KEY).map(HeaderValue::to_str) {
        None => None,
        Some(Ok(key)) if (1..=LONGEST_KEY).contains(&key.len()) => Some(key),
        Some(_) => {
            return Err(Problem::bad_request(
                "`Idempotency-Key` has 1 to 200 ASCII characters",
            ));
        }
    };
    check_settings(&request)?;
    api.check_isolated(&request).await?;
    let priority = request.priority;
    let Some(key) = key else {
        let run = api
            .submit(new_run(&api, &request), request.place(), priority)
            .await?;
        return Ok(queued(&run));
    };
    let text = serde_json::to_vec(&request).map_err(|error| Problem::bad_request(error.to_string()))?;
    let (store, name) = (&api.store, &caller.name);
    match store.begin_creation(name, key, &Digest::sha256(&text)).await? {
        ApiCreation::New => {}
        ApiCreation::Done(run) => return Ok(queued(&run)),
        ApiCreation::Pending => {
            return Err(conflict("a creation with this `Idempotency-Key` is not finished"));
        }
        ApiCreation::Other => return Err(conflict("this `Idempotency-Key` was used for another request")),
    }
    match api
        .submit(new_run(&api, &request), request.place(), priority)
        .await
    {
        Ok(run) => {
            store.finish_creation(name, key, &run).await?;
            Ok(queued(&run))
        }
        Err(problem) => {
            store.abandon_creation(name, key).await?;
            Err(problem)
        }
    }
}

/// Queues a run that exists, so that a worker goes on with it.
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
) -> Result<(StatusCode, Json<QueuedRunId>), Problem> {
    api.changing_control(&caller, &run)?;
    if run.holder()?.is_some() {
        return Err(conflict("the run is being worked on"));
    }
    let run = SubmittedRun::Existing(run.facts().id.clone());
    let run = api.submit(run, RunPlace::ThisHost, 0).await?;
    Ok((StatusCode::ACCEPTED, queued(&run).1))
}

/// Refuses settings that are for the person at the host.
fn check_settings(request: &NewRunRequest) -> Result<(), Problem> {
    let is_allowed = |key: &&String| {
        let is_named = |allowed: &&str| {
            key.as_str() == *allowed || (allowed.ends_with('.') && key.starts_with(*allowed))
        };
        SETTINGS.iter().any(is_named)
    };
    match request.settings.keys().find(|key| !is_allowed(key)) {
        None => Ok(()),
        Some(key) => Err(Problem::new(
            StatusCode::FORBIDDEN,
            format!(
                "the setting `{key}` cannot be chosen over the API; these can: {}",
                SETTINGS.join(", ")
            ),
        )),
    }
}

fn new_run(api: &Api, request: &NewRunRequest) -> SubmittedRun {
    SubmittedRun::New(Box::new(builder(api, request)))
}

fn builder(api: &Api, request: &NewRunRequest) -> RalphBuilder {
    let mut builder = Ralph::builder()
        .surroundings(api.surroundings.clone())
        .task_text(&request.task);
    for (key, value) in &request.settings {
        builder = builder.set(key, value);
    }
    if let Some(dir) = &request.repository {
        builder = builder.repository(dir);
    }
    if let Some(url) = &request.repository_url {
        builder = builder.repo_url(url);
    }
    if let Some(script) = &request.script {
        builder = builder.script(script);
    }
    builder
}

fn queued(run: &RunId) -> (StatusCode, Json<QueuedRunId>) {
    let run = run.to_string();
    (StatusCode::CREATED, Json(QueuedRunId { run }))
}

fn conflict(detail: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, detail)
}

impl Api {
    /// Refuses a new run without isolation where [`Api::refuses_unisolated`] says so.
    async fn check_isolated(&self, request: &NewRunRequest) -> Result<(), Problem> {
        if !self.refuses_unisolated() {
            return Ok(());
        }
        let queued = builder(self, request).prepare().await?.queued().await?;
        if queued.provider == LOCAL {
            return Err(unisolated("the run would work"));
        }
        Ok(())
    }

    async fn submit(&self, run: SubmittedRun, place: RunPlace, priority: i64) -> Result<RunId, Problem> {
        let host = format!("host={}", self.surroundings.owner().host);
        let request = SubmitRequest {
            run,
            labels: match place {
                RunPlace::ThisHost => vec![Label::parse(&host)?],
                RunPlace::Anywhere => Vec::new(),
            },
            priority,
            not_before: None,
            max_attempts: ATTEMPTS,
        };
        Ok(submit(&self.context(), &self.store, request).await?)
    }
}
