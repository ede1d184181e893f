//! Creates runs and queues them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assembly::{Ralph, RalphBuilder};
use crate::digest::Digest;
use crate::id::RunId;
use crate::service::{SubmitRequest, SubmittedRun, submit};
use crate::store::{ApiCreation, CreationAttempt, Label, LeaseState};
use crate::text::error_chain;

use super::extract::{JsonBody, NamedRun};
use super::problem::Problem;
use super::steer::unisolated;
use super::{Api, Caller};

/// The header that makes a repeated creation harmless.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The provider without isolation.
pub(super) const LOCAL: &str = "local";

/// The longest key.
const LONGEST_KEY: usize = 200;

/// How often a creation is renewed in the store, so that no other service takes it over.
const RENEWAL: Duration = Duration::from_secs(1);

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
    api.check_isolated(&caller, &request).await?;
    let key = key.map(str::to_owned);
    // A client that closes its connection does not leave half a creation.
    let creation = tokio::spawn(async move {
        match key {
            None => api.create(RunId::random(), &request).await,
            Some(key) => Box::pin(api.create_once(&caller.name, &key, &request)).await,
        }
    });
    let run = creation
        .await
        .map_err(|_| Problem::internal("the creation ended in the middle"))??;
    Ok(queued(&run))
}

/// Queues a run that exists, so that a worker goes on with it.
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
) -> Result<(StatusCode, Json<QueuedRunId>), Problem> {
    api.changing_control(&caller, &run).await?;
    if run.holder()?.is_some() {
        return Err(conflict("the run is being worked on"));
    }
    let run = SubmittedRun::Existing(run.facts().id.clone());
    let run = api.submit(run, RunPlace::ThisHost, 0).await?;
    api.index.report(&run);
    Ok((StatusCode::ACCEPTED, queued(&run).1))
}

/// Refuses settings that are for the person at the host.
pub(super) fn check_settings(request: &NewRunRequest) -> Result<(), Problem> {
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
    async fn check_isolated(&self, caller: &Caller, request: &NewRunRequest) -> Result<(), Problem> {
        if !self.refuses_unisolated(caller) {
            return Ok(());
        }
        let queued = builder(self, request).prepare().await?.queued().await?;
        if queued.provider == LOCAL {
            return Err(unisolated("the run would work on this host"));
        }
        Ok(())
    }

    /// Creates the run of a key, or finds the one that the key created.
    async fn create_once(&self, caller: &str, key: &str, request: &NewRunRequest) -> Result<RunId, Problem> {
        let text = serde_json::to_vec(request).map_err(|error| Problem::bad_request(error.to_string()))?;
        let attempt = CreationAttempt {
            caller: caller.to_owned(),
            key: key.to_owned(),
            request: Digest::sha256(&text),
            proposed: RunId::random(),
        };
        let run = match self.store.begin_creation(&attempt).await? {
            ApiCreation::Taken(run) => run,
            ApiCreation::Done(run) => return Ok(run),
            ApiCreation::AtWork => {
                return Err(conflict("a creation with this `Idempotency-Key` is not finished"));
            }
            ApiCreation::Other => {
                return Err(conflict("this `Idempotency-Key` was used for another request"));
            }
        };
        let created = tokio::select! {
            created = self.create_or_queue(run.clone(), request) => created,
            () = self.keep_creation(&attempt) => {
                return Err(conflict("another service finishes this creation"));
            }
        };
        match created {
            Ok(run) => {
                self.store.finish_creation(&attempt, &run).await?;
                Ok(run)
            }
            // Once there is a run, a repeated request goes on with it.
            Err(problem) if self.run_here(&run)?.is_some() => Err(problem),
            Err(problem) => {
                if let Err(error) = self.store.abandon_creation(&attempt).await {
                    tracing::warn!(error = %error_chain(&error), "cannot forget a creation that failed");
                }
                Err(problem)
            }
        }
    }

    /// Returns when another service has taken the creation over. That a renewal fails leaves this unknown.
    async fn keep_creation(&self, attempt: &CreationAttempt) {
        while !matches!(self.store.renew_creation(attempt).await, Ok(LeaseState::Lost)) {
            tokio::time::sleep(RENEWAL).await;
        }
    }

    /// An attempt that was cut off may have created the run, and may have queued it.
    async fn create_or_queue(&self, run: RunId, request: &NewRunRequest) -> Result<RunId, Problem> {
        // Another host that shares the store may have done it.
        if self.store.queue_row(&run).await?.is_some() {
            return Ok(run);
        }
        if self.run_here(&run)?.is_none() {
            return self.create(run, request).await;
        }
        let existing = SubmittedRun::Existing(run);
        self.submit(existing, request.place(), request.priority).await
    }

    async fn create(&self, run: RunId, request: &NewRunRequest) -> Result<RunId, Problem> {
        let new = SubmittedRun::New(Box::new(builder(self, request).run_id(run)));
        let run = self.submit(new, request.place(), request.priority).await?;
        // The run is queued: that the index lags must not look like a failure.
        self.index.refresh_if_possible(&run).await;
        Ok(run)
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
