//! The pages of one run.

use std::io;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Page;
use super::client::{ApiClient, PageError, parameters};
use super::diff::DiffView;
use crate::chart::bar_chart;
use crate::text::url_part;

/// How many iterations the API gives at once.
const PAGE: usize = 200;

/// The state of a run in the queue that no worker has taken.
const QUEUED: &str = "queued";

/// How many characters of a run's id a title shows.
const SHORT_ID: usize = 8;

/// A page about a run, with its state.
async fn run_page(
    client: &ApiClient,
    run: &str,
    template: &'static str,
    tab: &str,
) -> Result<Page, PageError> {
    let status = client.get(&format!("/api/runs/{run}")).await?;
    // Until a worker takes it, a run in the queue has no other state that says something.
    let shown = if status["queue"] == QUEUED {
        "queue"
    } else {
        "state"
    };
    let state = status[shown].clone();
    let id: String = run.chars().take(SHORT_ID).collect();
    let title = format!("{}: {} ({id})", state.as_str().unwrap_or_default(), tab);
    let page = client.page(template, &title).await?;
    Ok(page.with("run", status).with("state", state).with("tab", tab))
}

/// The last iterations of a run before one, oldest first.
async fn iterations_before(
    client: &ApiClient,
    run: &str,
    before: Option<u32>,
    limit: usize,
) -> Result<Value, PageError> {
    let before = before.unwrap_or(u32::MAX);
    let path = format!("/api/runs/{run}/iterations?limit={limit}&before={before}");
    client.get(&path).await
}

/// A part of a page that can be left out: a run that another host has lacks some, and a mistake in a configuration must not
/// hide the controls. `problems` gets the reason, once.
fn kept<T: Default>(part: Result<T, PageError>, problems: &mut Vec<Value>) -> Result<T, PageError> {
    let error = match part {
        Err(error) if error.status() != StatusCode::UNAUTHORIZED => error,
        part => return part,
    };
    let problem = error.problem();
    if !problems.contains(&problem) {
        problems.push(problem);
    }
    Ok(T::default())
}

/// The state of a run, its evidence, and its course.
pub(super) async fn overview(client: &ApiClient, run: &str) -> Result<Response, PageError> {
    let mut problems = Vec::new();
    let newest = iterations_before(client, run, None, 1).await;
    let newest = kept(newest, &mut problems)?;
    let course = client.get(&format!("/api/runs/{run}/course")).await;
    let course = kept(course, &mut problems)?;
    let evidence = client.get(&format!("/api/runs/{run}/evidence")).await;
    let evidence = kept(evidence.map(Some), &mut problems)?;
    let usage = client.get(&format!("/api/runs/{run}/usage")).await;
    let usage = kept(usage.map(Some), &mut problems)?;
    let values = |key: &str| -> Vec<f64> {
        let values = course[key].as_array().into_iter().flatten();
        values.filter_map(Value::as_f64).collect()
    };
    run_page(client, run, "run.html", "Overview")
        .await?
        .with("evidence", evidence.unwrap_or_else(|| json!({"commands": []})))
        .with(
            "usage",
            usage.unwrap_or_else(|| json!({"budgets": [], "checkboxes": []})),
        )
        .with("problems", problems)
        .with("last", &newest["iterations"][0])
        .with_markup(
            "cost_chart",
            bar_chart("Cost per iteration", &values("cost_usd"), "$"),
        )
        .with_markup(
            "time_chart",
            bar_chart("Seconds per iteration", &values("seconds"), ""),
        )
        .with_markup("score_chart", bar_chart("Loop score", &values("loop_score"), ""))
        .respond()
}

/// What the log can be narrowed to, with the kinds of events of each. Every kind is in one.
const LOG_GROUPS: [(&str, &str); 7] = [
    ("", "everything"),
    (
        "run_started,run_resumed,preflight,iteration_started,step_started,model_answered,iteration_ended,pull_request,\
         run_ended",
        "iterations",
    ),
    ("action,action_started", "actions"),
    ("output,transcript", "output"),
    (
        "checked,ticked,not_ticked,evidence_started,evidence_ended,ci_failed",
        "evidence",
    ),
    (
        "warning,waiting,budget_warning,ladder,loop_scored,diagnosed",
        "warnings",
    ),
    ("intervened", "people"),
];

/// What a person looks for in the log.
#[derive(Deserialize)]
struct LogQuery {
    kinds: Option<String>,
    search: Option<String>,
}

/// The log.
pub(super) async fn log(client: &ApiClient, run: &str, query: &str) -> Result<Response, PageError> {
    let log = client.get(&format!("/api/runs/{run}/log?{query}")).await?;
    let asked = parameters::<LogQuery>(query);
    let (kinds, search) = asked.map_or((None, None), |asked| (asked.kinds, asked.search));
    run_page(client, run, "log.html", "Log")
        .await?
        .with("log", log)
        .with("groups", LOG_GROUPS)
        .with("kinds", kinds.unwrap_or_default())
        .with("search", search.unwrap_or_default())
        .respond()
}

/// Lines of the log alone, which the script adds to the page. Headers say how to go on.
pub(super) async fn log_lines(client: &ApiClient, run: &str, query: &str) -> Result<Response, PageError> {
    let log = client.get(&format!("/api/runs/{run}/log?{query}")).await?;
    let more = if log["is_cut"] == true { "yes" } else { "no" };
    let headers = [("x-next", log["next"].to_string()), ("x-more", more.to_owned())];
    let page = Page::new("log_lines.html", "").with("log", log).respond()?;
    Ok((headers, page).into_response())
}

/// How many lines of the log are asked for at once.
const LINES: usize = 5000;

/// All lines that a person looks for, as a text to keep. It is made as it is sent, a few thousand lines at a time.
pub(super) async fn log_text(client: ApiClient, run: &str, query: &str) -> Result<Response, PageError> {
    let path = format!("/api/runs/{run}/log?limit={LINES}&{query}");
    // The first answer says whether there is a log at all.
    let first = client.get(&format!("{path}&after=0")).await?;
    let pages = stream::try_unfold(Some(first), move |page| {
        let (client, path) = (client.clone(), path.clone());
        async move {
            let Some(page) = page else {
                return Ok::<_, io::Error>(None);
            };
            let next = if page["is_cut"] == true {
                let next = client.get(&format!("{path}&after={}", page["next"])).await;
                // The connection ends without its last chunk, so the browser knows that something is missing.
                Some(next.map_err(|error| io::Error::other(error.problem().to_string()))?)
            } else {
                None
            };
            Ok(Some((plain_text(&page), next)))
        }
    });
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((plain, Body::from_stream(pages)).into_response())
}

/// The lines of an answer about the log, each with its time.
fn plain_text(log: &Value) -> String {
    let mut text = String::new();
    for line in log["lines"].as_array().into_iter().flatten() {
        let (at, line) = (line["at"].as_str(), line["text"].as_str());
        text.extend([at.unwrap_or_default(), " ", line.unwrap_or_default(), "\n"]);
    }
    text
}

/// The text of a file of the run; `None` if it has no such file.
async fn file(client: &ApiClient, run: &str, path: &str) -> Result<Option<String>, PageError> {
    let found = client
        .get(&format!("/api/runs/{run}/file?path={}", url_part(path)))
        .await;
    match found {
        Ok(file) => Ok(file["text"].as_str().map(str::to_owned)),
        Err(error) if error.status() == StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// The task, to read and to edit.
pub(super) async fn task(client: &ApiClient, run: &str) -> Result<Response, PageError> {
    let text = file(client, run, "ralph_task.md").await?;
    let page = run_page(client, run, "task.html", "Task").await?;
    page.with("text", text).respond()
}

/// Guardrails and notes.
pub(super) async fn notes(client: &ApiClient, run: &str) -> Result<Response, PageError> {
    let mut files = Vec::new();
    for (title, path) in [
        ("Guardrails", ".ralph/guardrails.md"),
        ("Notes", ".ralph/notes.md"),
        ("Progress", ".ralph/progress.md"),
    ] {
        files.push((title, file(client, run, path).await?));
    }
    let page = run_page(client, run, "notes.html", "Notes").await?;
    page.with("files", files).respond()
}

/// The iterations, newest first.
pub(super) async fn iterations(client: &ApiClient, run: &str, query: &str) -> Result<Response, PageError> {
    #[derive(Deserialize)]
    struct Before {
        before: Option<u32>,
    }
    let before = parameters::<Before>(query).and_then(|query| query.before);
    let mut list = iterations_before(client, run, before, PAGE).await?;
    if let Some(shown) = list["iterations"].as_array_mut() {
        shown.reverse();
    }
    run_page(client, run, "iterations.html", "Iterations")
        .await?
        .with("iterations", &list["iterations"])
        .with("earlier", &list["earlier"])
        .respond()
}

/// Everything about one iteration.
pub(super) async fn iteration(client: &ApiClient, run: &str, number: &str) -> Result<Response, PageError> {
    let record = client
        .get(&format!("/api/runs/{run}/iterations/{number}"))
        .await?;
    let diff = client
        .get(&format!("/api/runs/{run}/diff?iteration={number}"))
        .await?;
    let diff = DiffView::new(&diff);
    let mut files = files_below(client, run, &format!(".ralph/iterations/{number}/")).await?;
    // The page shows the changes themselves.
    files.retain(|(name, _)| name != "git_diff.patch");
    let page = run_page(client, run, "iteration.html", "Iterations").await?;
    page.with("record", record)
        .with("diff", diff)
        .with("files", files)
        .respond()
}

/// The files of a run in a directory: their names and texts.
async fn files_below(
    client: &ApiClient,
    run: &str,
    dir: &str,
) -> Result<Vec<(String, Option<String>)>, PageError> {
    let listed = client.get(&format!("/api/runs/{run}/files")).await?;
    let mut files = Vec::new();
    for path in listed["files"].as_array().into_iter().flatten() {
        if let Some(name) = path.as_str().and_then(|path| path.strip_prefix(dir)) {
            files.push((name.to_owned(), file(client, run, &format!("{dir}{name}")).await?));
        }
    }
    Ok(files)
}

/// Two iterations side by side.
pub(super) async fn compare(client: &ApiClient, run: &str, query: &str) -> Result<Response, PageError> {
    #[derive(Deserialize)]
    struct Pair {
        first: u32,
        second: u32,
    }
    let Some(pair) = parameters::<Pair>(query) else {
        return Err(PageError::not_found());
    };
    let mut records = Vec::new();
    for number in [pair.first, pair.second] {
        let path = format!("/api/runs/{run}/iterations/{number}");
        records.push(client.get(&path).await?);
    }
    let page = run_page(client, run, "compare.html", "Iterations").await?;
    page.with("records", records).respond()
}

/// What the run changed.
pub(super) async fn diff(client: &ApiClient, run: &str, query: &str) -> Result<Response, PageError> {
    #[derive(Deserialize)]
    struct Range {
        iteration: Option<u32>,
        since: Option<u32>,
    }
    let range = parameters::<Range>(query);
    let (iteration, since) = range.map_or((None, None), |range| (range.iteration, range.since));
    let chosen = match (iteration, since) {
        (Some(number), _) => format!("?iteration={number}"),
        (None, Some(number)) => format!("?since={number}"),
        (None, None) => String::new(),
    };
    let diff = client.get(&format!("/api/runs/{run}/diff{chosen}")).await?;
    run_page(client, run, "diff.html", "Diff")
        .await?
        .with("iteration", iteration)
        .with("since", since)
        .with("diff", DiffView::new(&diff))
        .respond()
}

/// The pull request.
pub(super) async fn pull_request(client: &ApiClient, run: &str) -> Result<Response, PageError> {
    let request = client.get(&format!("/api/runs/{run}/pull-request")).await?;
    let page = run_page(client, run, "pull_request.html", "Pull request").await?;
    page.with("request", request).respond()
}

/// The newest diagnosis.
pub(super) async fn diagnosis(client: &ApiClient, run: &str) -> Result<Response, PageError> {
    let text = file(client, run, ".ralph/diagnostics.md").await?;
    let page = run_page(client, run, "diagnosis.html", "Diagnosis").await?;
    page.with("text", text).respond()
}

/// What the run reached, and what was blocked.
pub(super) async fn network(client: &ApiClient, run: &str) -> Result<Response, PageError> {
    let network = client.get(&format!("/api/runs/{run}/network")).await?;
    let page = run_page(client, run, "network.html", "Network").await?;
    page.with("network", network).respond()
}

/// Where the run works, and the commands that a person may run there.
pub(super) async fn sandbox(client: &ApiClient, run: &str) -> Result<Response, PageError> {
    let sandbox = client.get(&format!("/api/runs/{run}/sandbox")).await?;
    let mut problems = Vec::new();
    let commands = client.get(&format!("/api/runs/{run}/commands")).await;
    let commands = kept(commands.map(Some), &mut problems)?.unwrap_or_else(|| json!({"commands": []}));
    let outputs = files_below(client, run, ".ralph/commands/").await?;
    let page = run_page(client, run, "sandbox.html", "Sandbox").await?;
    page.with("sandbox", sandbox)
        .with("commands", &commands["commands"])
        .with("problems", problems)
        .with("outputs", outputs)
        .respond()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::event::EventKind;

    #[test]
    fn the_groups_of_the_log_have_every_kind_of_event_once() {
        let schema = serde_json::to_value(schemars::schema_for!(EventKind)).unwrap();
        let variants = schema["oneOf"].as_array().unwrap();
        let kinds: BTreeSet<&str> = variants
            .iter()
            .map(|variant| variant["properties"]["event"]["const"].as_str().unwrap())
            .collect();
        assert!(kinds.contains("step_started"), "{kinds:?}");
        let grouped: Vec<&str> = LOG_GROUPS[1..]
            .iter()
            .flat_map(|(kinds, _)| kinds.split(','))
            .collect();
        assert_eq!(grouped.len(), kinds.len());
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), kinds);
    }
}
