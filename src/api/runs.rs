//! What can be looked at in runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::assembly::{DiffRange, RunControl, RunPullRequest, RunStatus, RunUsage};
use crate::state::{JournalLine, RunDir, standing_records};

use super::elsewhere::NamedEvents;
use super::extract::{NamedId, NamedRun, Parameters};
use super::problem::Problem;
use super::tail::{is_event_id, read_events};
use super::{Api, Caller};

/// The rows of a page, by default and at most.
pub(super) const PAGE: u32 = 50;
pub(super) const LONGEST_PAGE: u32 = 200;

/// How many events an answer has at most.
const MOST_EVENTS: usize = 1000;

/// How much of a diff is shown, in bytes. A page shows far less; the rest is in the repository.
const DIFF_SHOWN: usize = 4 * 1024 * 1024;

/// How much of a file is shown, in bytes.
const FILE_SHOWN: u64 = 1024 * 1024;

pub(super) type ApiResult<T> = Result<Json<T>, Problem>;

/// Does work that reads files, on a thread where that holds nothing up.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Problem::internal("the request could not be handled"))?
}

/// The state of a run, and where it is in the queue.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunDetails {
    #[serde(flatten)]
    status: RunStatus,
    /// Where it is in the queue: `queued`, `running`, `finished` or `needs_person`; `null` if it is not there.
    queue: Option<String>,
    /// The worker that has claimed it.
    worker: Option<String>,
}

pub(super) async fn get(State(api): State<Arc<Api>>, NamedId(id): NamedId) -> ApiResult<RunDetails> {
    let queued = api.store.queue_row(&id).await?;
    let (queue, worker) = queued.map_or((None, None), |row| (Some(row.state.to_string()), row.owner));
    let here = api.run_here(&id)?;
    if let Some(row) = api.newer_elsewhere(&id, here.as_ref()).await? {
        let status = RunStatus::of_row(&row);
        return Ok(Json(RunDetails {
            status,
            queue,
            worker,
        }));
    }
    let run = api.existing(&id, here)?;
    api.read_journal(run, |run, lines| {
        let status = RunStatus::with_journal(run, lines)?;
        Ok(RunDetails {
            status,
            queue,
            worker,
        })
    })
    .await
}

impl Api {
    /// Answers from the journal of a run.
    pub(super) async fn read_journal<T: Send + 'static>(
        &self,
        run: RunDir,
        read: impl FnOnce(&RunDir, &[JournalLine]) -> Result<T, Problem> + Send + 'static,
    ) -> ApiResult<T> {
        let journals = self.index.journals();
        blocking(move || Ok(Json(journals.read(&run, |lines| read(&run, lines))??))).await
    }
}

/// The evidence of the newest iteration that gathered some.
#[derive(Serialize, JsonSchema)]
pub(super) struct EvidenceReport {
    /// The iteration; `null` if there is no evidence yet.
    iteration: Option<u32>,
    /// The commit that it is about.
    commit: Option<String>,
    /// Whether its commands ran in a sandbox of their own, to which the agent had no access.
    apart: bool,
    /// The commands, in order.
    commands: Vec<EvidenceCommand>,
    /// All checkboxes that are ticked.
    ticked: Vec<String>,
}

/// A command that the runner itself ran.
#[derive(Serialize, JsonSchema)]
struct EvidenceCommand {
    /// The command.
    command: String,
    /// Its exit code.
    code: i32,
    /// How long it ran.
    seconds: f64,
}

pub(super) async fn evidence(
    State(api): State<Arc<Api>>,
    NamedRun(run): NamedRun,
) -> ApiResult<EvidenceReport> {
    api.read_journal(run, |_, lines| Ok(newest_evidence(lines))).await
}

/// The evidence of the newest iteration that gathered some.
pub(super) fn newest_evidence(lines: &[JournalLine]) -> EvidenceReport {
    let records = standing_records(lines);
    let newest = records.iter().rev().find(|record| !record.evidence.is_empty());
    let commands = newest.into_iter().flat_map(|record| &record.evidence);
    let commands = commands.map(|check| EvidenceCommand {
        command: check.command.clone(),
        code: check.code,
        seconds: check.seconds,
    });
    EvidenceReport {
        iteration: newest.map(|record| record.iteration),
        commit: newest.map(|record| record.tip.to_string()),
        apart: newest.is_some_and(|record| record.evidence_apart),
        commands: commands.collect(),
        ticked: newest.map(|record| record.ticked.clone()).unwrap_or_default(),
    }
}

pub(super) async fn usage(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
) -> ApiResult<RunUsage> {
    let control = api.control(&caller);
    api.read_journal(run, move |run, lines| Ok(control.usage(run, lines)?))
        .await
}

pub(super) async fn pull_request(
    State(api): State<Arc<Api>>,
    NamedRun(run): NamedRun,
) -> ApiResult<RunPullRequest> {
    api.read_journal(run, |run, lines| Ok(RunPullRequest::new(run, lines)?))
        .await
}

/// Which events.
#[derive(Deserialize, JsonSchema)]
pub(super) struct EventPage {
    /// The id of the last event that is known; 0 is the beginning.
    #[serde(default)]
    after: u64,
    /// How many at most.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

/// Events of a run. There may be more, up to when `events` is empty.
#[derive(Serialize, JsonSchema)]
pub(super) struct EventList {
    /// The events, oldest first.
    events: Vec<NumberedEvent>,
    /// `after` of the next page.
    next: u64,
}

/// An event and its id.
#[derive(Serialize, JsonSchema)]
struct NumberedEvent {
    /// The run.
    run: String,
    /// The id, which grows.
    id: u64,
    /// The event, as `ralph logs --json` prints it.
    event: Map<String, Value>,
}

pub(super) async fn events(
    NamedEvents(log): NamedEvents,
    Parameters(page): Parameters<EventPage>,
) -> Result<Response, Problem> {
    let limit = page.limit.unwrap_or(MOST_EVENTS).clamp(1, MOST_EVENTS);
    let unreadable = |error: std::io::Error| Problem::internal(error.to_string());
    blocking(move || {
        if !is_event_id(&log, page.after).map_err(unreadable)? {
            return Err(Problem::bad_request(
                "`after` is not the id of an event of this run",
            ));
        }
        let (frames, next) = read_events(&log, page.after, limit).map_err(unreadable)?;
        let frames: Vec<&str> = frames.iter().map(|frame| frame.text.as_str()).collect();
        let body = format!("{{\"events\":[{}],\"next\":{next}}}", frames.join(","));
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    })
    .await
}

/// Which changes.
#[derive(Deserialize, JsonSchema)]
pub(super) struct DiffChoice {
    /// Only those of this iteration.
    #[serde(default)]
    iteration: Option<u32>,
    /// Only those after this iteration, uncommitted work included. It is left out where `iteration` is given.
    #[serde(default)]
    since: Option<u32>,
    /// Only the names of files and how much changed in each.
    #[serde(default)]
    stat: bool,
}

/// Changes as text.
#[derive(Serialize, JsonSchema)]
pub(super) struct DiffText {
    /// What `git diff` prints; `null` if nothing is recorded yet. A long one lacks its middle, where a line says so.
    diff: Option<String>,
    /// The length of the whole diff.
    bytes: u64,
    /// Whether something was left out.
    is_cut: bool,
}

pub(super) async fn diff(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    Parameters(choice): Parameters<DiffChoice>,
) -> ApiResult<DiffText> {
    let range = match (choice.iteration, choice.since) {
        (Some(number), _) => DiffRange::Iteration(number),
        (None, Some(number)) => DiffRange::Since(number),
        (None, None) => DiffRange::Whole,
    };
    let (control, redactor) = (api.control(&caller), api.redactor(&caller).await?);
    let diff = control
        .diff_within(&run, range, choice.stat, DIFF_SHOWN, &redactor)
        .await?;
    let bytes = diff.as_ref().map_or(0, |diff| diff.bytes);
    Ok(Json(DiffText {
        diff: diff.map(|diff| diff.text),
        bytes,
        is_cut: bytes > DIFF_SHOWN as u64,
    }))
}

/// The files of a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct FileList {
    /// Their paths.
    files: Vec<String>,
}

pub(super) async fn files(NamedRun(run): NamedRun) -> ApiResult<FileList> {
    blocking(move || {
        Ok(Json(FileList {
            files: RunControl::files(&run)?,
        }))
    })
    .await
}

/// Which file.
#[derive(Deserialize, JsonSchema)]
pub(super) struct FileChoice {
    /// A path of the list of files.
    path: String,
}

/// A file of a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct FileText {
    /// Its path.
    path: String,
    /// Its first mebibyte.
    text: String,
    /// The length of the whole file.
    bytes: u64,
}

pub(super) async fn file(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
    Parameters(choice): Parameters<FileChoice>,
) -> ApiResult<FileText> {
    let redactor = api.redactor(&caller).await?;
    blocking(move || {
        let file = RunControl::file(&run, &choice.path, FILE_SHOWN)?.redacted(&redactor);
        Ok(Json(FileText {
            path: choice.path,
            text: file.text,
            bytes: file.bytes,
        }))
    })
    .await
}

/// The hosts that a run reached, and those that were blocked, most frequent first.
#[derive(Serialize, JsonSchema)]
pub(super) struct NetworkReport {
    /// Allowed requests.
    reached: Vec<HostCount>,
    /// Denied requests.
    blocked: Vec<HostCount>,
}

/// How often a host was asked for.
#[derive(Serialize, JsonSchema)]
struct HostCount {
    /// The host name or address.
    host: String,
    /// The port, if known.
    port: Option<u16>,
    /// How often.
    count: u64,
    /// The line of an allowlist that would allow it; `null` if no line does.
    suggestion: Option<String>,
}

pub(super) async fn network(NamedRun(run): NamedRun) -> ApiResult<NetworkReport> {
    blocking(move || {
        let used = RunControl::network_use(&run)?;
        let [reached, blocked] = [used.reached, used.blocked].map(|entries| {
            let counts = entries.into_iter().map(|entry| HostCount {
                suggestion: entry.suggestion(),
                host: entry.key.host,
                port: entry.key.port,
                count: entry.count,
            });
            counts.collect()
        });
        Ok(Json(NetworkReport { reached, blocked }))
    })
    .await
}
