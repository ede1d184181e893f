//! The view without a terminal: lines of text.

use std::time::Duration;

use tokio::time::sleep;

use super::super::ui::align_columns;
use super::super::{CliError, CliExit, CliResult, Context};
use super::client::{RunClient, WatchedLogPage};
use super::overview::{RunGroup, cost, state_name};

/// How often a log is read.
const INTERVAL: Duration = Duration::from_millis(500);

/// Prints one line for each run.
pub(super) async fn list(context: &Context, client: &RunClient) -> CliResult {
    let mut listed = client.runs().await?;
    if listed.runs.is_empty() {
        context
            .ui
            .say("No runs yet. `ralph run` starts one, `ralph demo` shows one.");
        return Ok(CliExit::Success);
    }
    listed
        .runs
        .sort_by_key(|row| RunGroup::of(&row.state, row.queue.as_deref()));
    let mut rows = vec![["RUN", "STATE", "ITERATIONS", "TICKED", "COST", "TASK"].map(str::to_owned)];
    rows.extend(listed.runs.iter().map(|row| {
        [
            row.run.clone(),
            state_name(row).to_owned(),
            row.iterations.to_string(),
            format!("{}/{}", row.ticked, row.checkboxes),
            cost(row.cost_usd, row.unpriced_calls),
            row.task.clone(),
        ]
    }));
    context.ui.data(align_columns(&rows))?;
    if listed.next.is_some() {
        context.ui.say("Older runs are left out.");
    }
    Ok(CliExit::Success)
}

/// Prints the log of a run, and goes on until nothing works on the run.
pub(super) async fn follow(context: &Context, client: &RunClient, run: &str) -> CliResult {
    let mut after = 0;
    loop {
        // First the state: what is logged until the end of the run is printed.
        let details = client.details(run).await?;
        let group = RunGroup::of(&details.state, details.queue.as_deref());
        after = print_rest(context, client, run, after).await?;
        if !matches!(group, RunGroup::Running | RunGroup::Queued) {
            return Ok(CliExit::Success);
        }
        sleep(INTERVAL).await;
    }
}

/// Prints what follows an event. Returns the last one.
async fn print_rest(
    context: &Context,
    client: &RunClient,
    run: &str,
    mut after: u64,
) -> Result<u64, CliError> {
    loop {
        let WatchedLogPage { lines, next, .. } = client.log(run, Some(after), "").await?;
        for line in &lines {
            context.ui.data(line.shown())?;
        }
        if next == after {
            return Ok(after);
        }
        after = next;
    }
}
