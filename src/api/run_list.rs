//! The list of runs, from the index.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::{ListedRun, RunCursor, RunFilter};

use super::Api;
use super::extract::Parameters;
use super::problem::Problem;
use super::runs::{LONGEST_PAGE, PAGE};

/// Which runs, and which page of them.
#[derive(Deserialize, JsonSchema)]
pub(super) struct RunPage {
    /// `next` of the page before.
    #[serde(default)]
    after: Option<String>,
    /// How many runs at most.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    limit: Option<u32>,
    /// Only runs in this state, as `running` or `done`.
    #[serde(default)]
    state: Option<String>,
    /// Only runs that are there in the queue: `queued`, `running`, `finished` or `needs_person`.
    #[serde(default)]
    queue: Option<String>,
    /// Only runs of this project directory.
    #[serde(default)]
    project: Option<String>,
    /// Only runs with this text in their title, id or branch.
    #[serde(default)]
    text: Option<String>,
}

/// A page of the list of runs.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunList {
    /// The runs, newest first.
    runs: Vec<RunListEntry>,
    /// `after` of the next page; `null` on the last one.
    next: Option<String>,
}

/// What a list shows of a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunListEntry {
    /// Its id.
    run: String,
    /// The host that worked on it last.
    host: String,
    /// `running`, `interrupted`, or how it ended.
    state: String,
    /// Why it ended.
    reason: Option<String>,
    /// Where it is in the queue: `queued`, `running`, `finished` or `needs_person`; `null` if it is not there.
    queue: Option<String>,
    /// The worker that has claimed it.
    worker: Option<String>,
    /// The title of its task.
    task: String,
    /// The git directory of the user's repository.
    repository: String,
    /// The branch that gets the work.
    branch: String,
    /// The directory whose configuration it was created with.
    project: Option<String>,
    /// Recorded iterations.
    iterations: u32,
    /// The number of checkboxes of its task.
    checkboxes: u32,
    /// How many of them are ticked.
    ticked: u32,
    /// Input and output tokens.
    tokens: u64,
    /// The cost of all calls whose price is known.
    cost_usd: f64,
    /// Calls whose price is unknown.
    unpriced_calls: u64,
    /// Time at work.
    worked_seconds: u64,
    /// When it was created.
    created: String,
    /// When something was recorded last.
    updated: String,
    /// A URL or a file.
    pull_request: Option<String>,
}

impl RunListEntry {
    pub(super) fn new(listed: ListedRun) -> Self {
        let run = listed.run;
        Self {
            run: run.id.to_string(),
            host: run.host,
            state: run.state,
            reason: run.reason,
            queue: listed.queue.map(|state| state.to_string()),
            worker: listed.worker,
            task: run.title,
            repository: run.repository,
            branch: run.branch,
            project: run.project,
            iterations: run.iterations,
            checkboxes: run.checkboxes,
            ticked: run.ticked,
            tokens: run.tokens,
            cost_usd: run.cost.dollars(),
            unpriced_calls: run.unpriced_calls,
            worked_seconds: run.worked.as_secs(),
            created: run.created.to_string(),
            updated: run.updated.to_string(),
            pull_request: run.pull_request,
        }
    }
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    Parameters(page): Parameters<RunPage>,
) -> Result<Json<RunList>, Problem> {
    let limit = page.limit.unwrap_or(PAGE).clamp(1, LONGEST_PAGE);
    let after = page.after.map(|after| parse_cursor(&after)).transpose()?;
    let queue = page.queue.map(|state| state.parse()).transpose();
    let filter = RunFilter {
        state: page.state,
        queue: queue.map_err(|_| Problem::bad_request("`queue` is not a state of the queue"))?,
        project: page.project,
        text: page.text,
    };
    api.index.look_for_new().await?;
    // One run more shows whether there is a next page.
    let read = || api.store.list_runs(&filter, after.as_ref(), limit + 1);
    let mut listed = read().await?;
    let shown = listed.iter().map(|listed| listed.run.id.clone()).collect();
    if api.index.refresh(shown).await? {
        listed = read().await?;
    }
    let has_more = listed.len() > limit as usize;
    listed.truncate(limit as usize);
    let next = listed.last().filter(|_| has_more).map(cursor);
    Ok(Json(RunList {
        runs: listed.into_iter().map(RunListEntry::new).collect(),
        next,
    }))
}

/// The cursor is a time and an id, so that a page goes on where it was, also if that run is gone.
fn cursor(listed: &ListedRun) -> String {
    format!("{}.{}", listed.run.created.as_millisecond(), listed.run.id)
}

fn parse_cursor(text: &str) -> Result<RunCursor, Problem> {
    let parsed = text.split_once('.').and_then(|(created, id)| {
        Some(RunCursor {
            created_ms: created.parse().ok()?,
            id: id.to_owned(),
        })
    });
    parsed.ok_or_else(|| Problem::bad_request("`after` is not the `next` of a page"))
}
