//! The iterations of runs.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::assembly::run_view::no_iteration;
use crate::state::{IterationRecord, standing_records};

use super::Api;
use super::extract::{NamedIteration, NamedRun, Parameters};
use super::runs::{ApiResult, LONGEST_PAGE, PAGE};

/// Which iterations.
#[derive(Deserialize, JsonSchema)]
pub(super) struct IterationPage {
    /// The number of the last iteration of the page before.
    #[serde(default)]
    after: Option<u32>,
    /// The number of an iteration: the last ones before it, in place of the first ones.
    #[serde(default)]
    before: Option<u32>,
    /// How many at most.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    limit: Option<u32>,
}

/// A page of the iterations of a run.
#[derive(Serialize, JsonSchema)]
pub(super) struct IterationList {
    /// The iterations, oldest first. Those that a retry took back are left out.
    iterations: Vec<IterationSummary>,
    /// `after` of the next page; `null` on the last one.
    next: Option<u32>,
    /// `before` of the page before; `null` on the first one.
    earlier: Option<u32>,
}

/// What a list shows of an iteration.
#[derive(Serialize, JsonSchema)]
pub(super) struct IterationSummary {
    /// Its number, from 1.
    iteration: u32,
    /// The tip of the branch at its end.
    tip: String,
    /// The model profile.
    profile: String,
    /// The agent.
    agent: String,
    /// The model.
    model: String,
    /// The agent's summary of its work.
    summary: String,
    /// How the agent ended it.
    ending: String,
    /// Lines added and removed.
    changed_lines: u64,
    /// The checkboxes that it ticked.
    newly_ticked: Vec<String>,
    /// From 0 (fine) to 1 (going in circles).
    loop_score: f64,
    /// Input and output tokens.
    tokens: u64,
    /// The cost of all calls whose price is known.
    cost_usd: f64,
    /// How long it took.
    seconds: f64,
}

impl IterationSummary {
    pub(super) fn new(record: &IterationRecord) -> Self {
        Self {
            iteration: record.iteration,
            tip: record.tip.to_string(),
            profile: record.profile.clone(),
            agent: record.agent.clone(),
            model: record.model.clone(),
            summary: record.summary.clone(),
            ending: record.ending.clone(),
            changed_lines: record.changed_lines,
            newly_ticked: record.newly_ticked.clone(),
            loop_score: record.score.total,
            tokens: record.tokens.total(),
            cost_usd: record.cost.dollars(),
            seconds: seconds(record),
        }
    }
}

pub(super) async fn iterations(
    State(api): State<Arc<Api>>,
    NamedRun(run): NamedRun,
    Parameters(page): Parameters<IterationPage>,
) -> ApiResult<IterationList> {
    let limit = page.limit.unwrap_or(PAGE).clamp(1, LONGEST_PAGE) as usize;
    api.read_journal(run, move |_, lines| {
        let (after, before) = (page.after.unwrap_or(0), page.before.unwrap_or(u32::MAX));
        let records = standing_records(lines);
        let first = records.partition_point(|record| record.iteration <= after);
        let end = records
            .partition_point(|record| record.iteration < before)
            .max(first);
        let shown = match page.before {
            None => first..end.min(first + limit),
            Some(_) => first.max(end.saturating_sub(limit))..end,
        };
        let is_last = shown.end == records.len();
        let next = records[..shown.end].last().filter(|_| !is_last);
        let earlier = records[shown.clone()].first().filter(|_| shown.start > 0);
        Ok(IterationList {
            next: next.map(|record| record.iteration),
            earlier: earlier.map(|record| record.iteration),
            iterations: records[shown]
                .iter()
                .map(|record| IterationSummary::new(record))
                .collect(),
        })
    })
    .await
}

pub(super) async fn iteration(
    State(api): State<Arc<Api>>,
    NamedRun(run): NamedRun,
    NamedIteration(number): NamedIteration,
) -> ApiResult<Value> {
    api.read_journal(run, move |run, lines| {
        let records = standing_records(lines);
        let found = records.into_iter().find(|record| record.iteration == number);
        let record = found.ok_or_else(|| no_iteration(run, number))?;
        Ok(serde_json::to_value(record).map_err(crate::state::StateError::encode("record"))?)
    })
    .await
}

/// The figures of all iterations, for charts. Those that a retry took back are left out.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunCourse {
    /// The cost of all calls of each iteration whose price is known, oldest first.
    cost_usd: Vec<f64>,
    /// How long each took.
    seconds: Vec<f64>,
    /// The loop score of each, from 0 (fine) to 1 (going in circles).
    loop_score: Vec<f64>,
}

pub(super) async fn course(State(api): State<Arc<Api>>, NamedRun(run): NamedRun) -> ApiResult<RunCourse> {
    api.read_journal(run, |_, lines| {
        let records = standing_records(lines);
        let values =
            |value: fn(&IterationRecord) -> f64| records.iter().map(|record| value(record)).collect();
        Ok(RunCourse {
            cost_usd: values(|record| record.cost.dollars()),
            seconds: values(seconds),
            loop_score: values(|record| record.score.total),
        })
    })
    .await
}

/// How long an iteration took.
fn seconds(record: &IterationRecord) -> f64 {
    std::time::Duration::from_millis(record.milliseconds).as_secs_f64()
}
