//! What the view asks of a source of runs.

use std::sync::Arc;

use axum::http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::text::url_part;

use super::super::{CliError, ErrorTopic};
use super::source::{RunSource, ask};

/// How many runs are listed, and how many lines of a log are kept. The API answers with no more.
const MOST_RUNS: usize = 200;
pub(super) const MOST_LINES: usize = 5000;

/// What a list shows of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct RunRow {
    pub(super) run: String,
    pub(super) state: String,
    pub(super) queue: Option<String>,
    pub(super) task: String,
    pub(super) iterations: u32,
    pub(super) checkboxes: u32,
    pub(super) ticked: u32,
    pub(super) cost_usd: f64,
    pub(super) unpriced_calls: u64,
    pub(super) updated: String,
}

/// The runs of a source, newest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct RunRows {
    pub(super) runs: Vec<RunRow>,
    /// Set if there are more.
    pub(super) next: Option<String>,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct WatchedRun {
    pub(super) run: String,
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) task: String,
    pub(super) repository: String,
    pub(super) branch: String,
    pub(super) iterations: u32,
    pub(super) checkboxes: Vec<BoxDetails>,
    pub(super) loop_score: Option<f64>,
    pub(super) tokens: u64,
    pub(super) cost_usd: f64,
    pub(super) unpriced_calls: u64,
    pub(super) worked_seconds: u64,
    pub(super) pull_request: Option<String>,
    pub(super) interventions: Vec<AskedDetails>,
}

/// A checkbox of a task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct BoxDetails {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) ticked: bool,
}

/// What a person asked of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct AskedDetails {
    pub(super) by: String,
    pub(super) what: String,
    pub(super) state: String,
    pub(super) reason: Option<String>,
}

/// A limit, and what is used of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct WatchedBudget {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) used: f64,
    pub(super) limit: f64,
}

impl WatchedBudget {
    /// How much is used, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        if self.limit > 0.0 {
            (self.used / self.limit).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }
}

#[derive(Deserialize)]
struct Usage {
    budgets: Vec<WatchedBudget>,
}

/// Lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct WatchedLogPage {
    pub(super) lines: Vec<LoggedLine>,
    /// `after` of the lines that follow.
    pub(super) next: u64,
    /// Set if there are lines before these.
    pub(super) earlier: Option<u64>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct LoggedLine {
    pub(super) at: String,
    pub(super) style: String,
    pub(super) text: String,
}

impl LoggedLine {
    /// The line as people read it.
    pub(super) fn shown(&self) -> String {
        // `2026-11-17T20:00:00.123Z`
        let time = self.at.split_once('T').and_then(|(_, time)| time.get(..8));
        format!("{} {}", time.unwrap_or(&self.at), self.text)
    }
}

/// Changes as text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct WatchedDiff {
    pub(super) diff: Option<String>,
    pub(super) is_cut: bool,
}

/// What a person asks of a run with a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WatchRequest {
    Pause,
    Resume,
    Rotate,
    Stop,
    Note(String),
    Sign {
        name: String,
        trigger: String,
        instruction: String,
    },
}

impl WatchRequest {
    fn operation(&self) -> (&'static str, Value) {
        match self {
            Self::Pause => ("pause", json!({})),
            Self::Resume => ("resume", json!({})),
            Self::Rotate => ("rotate", json!({})),
            Self::Stop => ("stop", json!({})),
            Self::Note(text) => ("notes", json!({ "text": text })),
            Self::Sign {
                name,
                trigger,
                instruction,
            } => (
                "signs",
                json!({"name": name, "trigger": trigger, "instruction": instruction}),
            ),
        }
    }

    /// What happens next, after the request was accepted.
    fn accepted(&self, run: &str, answer: &Value) -> String {
        match self {
            Self::Stop if answer["state"] == "done" => format!("Took run {run} out of the queue."),
            Self::Stop => format!("Asked run {run} to stop."),
            Self::Pause => format!("Asked run {run} to pause after this iteration."),
            Self::Rotate => format!("Asked run {run} for a fresh iteration."),
            Self::Resume => {
                format!("Queued run {run}: a worker continues it (`ralph worker`, `ralph serve`).")
            }
            Self::Note(_) => format!("Left a note for run {run}: its next iteration reads it."),
            Self::Sign { name, .. } => {
                format!("Left the sign `{name}` for run {run}: every later iteration reads it.")
            }
        }
    }
}

/// Asks a source, and knows the operations of the API.
#[derive(Clone)]
pub(super) struct RunClient(Arc<dyn RunSource>);

impl RunClient {
    pub(super) fn new(source: impl RunSource + 'static) -> Self {
        Self(Arc::new(source))
    }

    /// What is watched, for people.
    pub(super) fn name(&self) -> &str {
        self.0.name()
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let value = ask(self.0.as_ref(), Method::GET, path, None).await?;
        serde_json::from_value(value).map_err(|error| {
            let name = self.name();
            CliError::runtime(format!("{name} answered `{path}` in another form: {error}"))
                .with_topic(ErrorTopic::Service)
                .with_hint("use the same version of ralph on both hosts")
        })
    }

    /// The newest runs.
    pub(super) async fn runs(&self) -> Result<RunRows, CliError> {
        self.get(&format!("/api/runs?limit={MOST_RUNS}")).await
    }

    /// The runs with this text in their id, title or branch.
    pub(super) async fn runs_with(&self, text: &str) -> Result<RunRows, CliError> {
        let text = url_part(text);
        self.get(&format!("/api/runs?limit={MOST_RUNS}&text={text}"))
            .await
    }

    pub(super) async fn details(&self, run: &str) -> Result<WatchedRun, CliError> {
        self.get(&format!("/api/runs/{}", url_part(run))).await
    }

    pub(super) async fn budgets(&self, run: &str) -> Result<Vec<WatchedBudget>, CliError> {
        let usage: Usage = self.get(&format!("/api/runs/{}/usage", url_part(run))).await?;
        Ok(usage.budgets)
    }

    /// Lines of the log with this text: those after an id, or the last ones.
    pub(super) async fn log(
        &self,
        run: &str,
        after: Option<u64>,
        search: &str,
    ) -> Result<WatchedLogPage, CliError> {
        let after = after.map_or_else(String::new, |after| format!("&after={after}"));
        let (run, search) = (url_part(run), url_part(search));
        let path = format!("/api/runs/{run}/log?limit={MOST_LINES}&search={search}{after}");
        self.get(&path).await
    }

    pub(super) async fn diff(&self, run: &str) -> Result<WatchedDiff, CliError> {
        self.get(&format!("/api/runs/{}/diff", url_part(run))).await
    }

    /// Asks something of a run. Returns what happens next, for people.
    pub(super) async fn request(&self, run: &str, request: &WatchRequest) -> Result<String, CliError> {
        let (operation, body) = request.operation();
        let path = format!("/api/runs/{}/{operation}", url_part(run));
        let answer = ask(self.0.as_ref(), Method::POST, &path, Some(&body)).await?;
        Ok(request.accepted(run, &answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_its_time_of_day() {
        let mut line = LoggedLine {
            at: "2026-11-17T20:01:02.5Z".to_owned(),
            style: "plain".to_owned(),
            text: "tests pass".to_owned(),
        };
        assert_eq!(line.shown(), "20:01:02 tests pass");
        line.at = "Tä".to_owned();
        assert_eq!(line.shown(), "Tä tests pass");
    }

    #[test]
    fn the_share_of_a_budget_is_at_most_all_of_it() {
        let budget = |used, limit| WatchedBudget {
            name: "max_iterations".to_owned(),
            unit: "iterations".to_owned(),
            used,
            limit,
        };
        let shares = [budget(3.0, 6.0), budget(9.0, 6.0), budget(0.0, 0.0)]
            .map(|budget| format!("{:.1}", budget.share()));
        assert_eq!(shares, ["0.5", "1.0", "1.0"]);
    }
}
