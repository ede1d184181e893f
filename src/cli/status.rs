//! `ralph status`

use std::collections::HashMap;
use std::time::Duration;

use crate::assembly::{RunStatus, store};
use crate::id::RunId;
use crate::store::QueueState;

use super::overrides::quiet_configuration;
use super::run::how_to_merge;
use super::ui::align_columns;
use super::{CliError, CliExit, CliResult, Context};

/// How long a queue is asked for what happens to a run.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// List the runs and their states
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Only this run, with its checkboxes
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn status(context: &Context, args: &StatusArgs) -> CliResult {
    let runs = context.surroundings().runs()?;
    let listed = match &args.run {
        Some(name) => vec![context.control()?.find(name)?],
        None => runs.list()?,
    };
    let rows = listed.iter().map(RunStatus::new).collect::<Result<Vec<_>, _>>()?;
    if rows.is_empty() && !args.json {
        context
            .ui
            .say("No runs yet. `ralph run` starts one, `ralph demo` shows one.");
        return Ok(CliExit::Success);
    }
    if args.json {
        context.ui.json(&rows)?;
        return Ok(CliExit::Success);
    }
    let queue = tokio::time::timeout(LONGEST_LOOK, queue_states(context, &rows)).await;
    // A queue that cannot be read does not matter here.
    let queue = queue.ok().and_then(Result::ok).unwrap_or_default();
    let details = rows.iter().filter(|_| args.run.is_some()).map(details);
    context
        .ui
        .data(table(&rows, &queue) + &details.collect::<String>())?;
    let running = rows.iter().rfind(|row| row.state == "running");
    if let Some(row) = running.or(rows.last()) {
        context
            .ui
            .next(next_step(context, row, queue.get(&row.run).copied()));
    }
    Ok(CliExit::Success)
}

/// Where the runs that no process here works on are in the queue. Their journals do not say so.
async fn queue_states(
    context: &Context,
    rows: &[RunStatus],
) -> Result<HashMap<String, QueueState>, CliError> {
    let mut states = HashMap::new();
    let interrupted = || rows.iter().filter(|row| row.state == "interrupted");
    if interrupted().next().is_none() {
        return Ok(states);
    }
    let (surroundings, config) = (context.surroundings(), quiet_configuration(context, Vec::new())?);
    if !store::has_store(surroundings, &config)? {
        return Ok(states);
    }
    let store = store::open_store(surroundings, &config).await?;
    for row in interrupted() {
        if let Some(found) = store.queue_row(&RunId::parse(&row.run)?).await? {
            states.insert(row.run.clone(), found.state);
        }
    }
    store.close().await;
    Ok(states)
}

/// What to do with this run.
fn next_step(context: &Context, row: &RunStatus, in_queue: Option<QueueState>) -> String {
    let run = &row.run;
    match (row.state.as_str(), in_queue) {
        ("running", _) => format!("`ralph watch {run}` shows it at work"),
        ("done", _) => how_to_merge(
            context,
            row.pull_request.as_deref(),
            row.repository.as_ref(),
            &row.branch,
        ),
        ("failed" | "broken", _) => {
            format!("`ralph logs {run}` shows why it failed; `ralph resume {run}` continues it")
        }
        (_, Some(QueueState::Queued)) => format!("run {run} is queued: `ralph worker` works on it"),
        (_, Some(QueueState::Running)) => format!("a worker has run {run}: `ralph watch {run}` shows it"),
        (_, Some(QueueState::Finished | QueueState::NeedsPerson) | None) => {
            format!("`ralph resume {run}` continues it")
        }
    }
}

fn table(rows: &[RunStatus], queue: &HashMap<String, QueueState>) -> String {
    let mut cells = vec![["RUN", "STATE", "ITERATIONS", "TICKED", "COST", "TASK"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let ticked = row.checkboxes.iter().filter(|one| one.ticked).count();
        let cost = if row.unpriced_calls > 0 {
            "unknown".to_owned()
        } else {
            format!("${:.4}", row.cost_usd)
        };
        [
            row.run.clone(),
            match queue.get(&row.run) {
                Some(QueueState::Queued) => "queued".to_owned(),
                _ => row.state.clone(),
            },
            row.iterations.to_string(),
            format!("{ticked}/{}", row.checkboxes.len()),
            cost,
            row.task.clone(),
        ]
    }));
    align_columns(&cells)
}

fn details(row: &RunStatus) -> String {
    let mut text = format!("\n\nbranch       {}\nrepository   {}", row.branch, row.repository);
    text.extend(row.reason.iter().map(|reason| format!("\nreason       {reason}")));
    text.extend(
        row.pull_request
            .iter()
            .map(|place| format!("\npull request {place}")),
    );
    text.extend(row.interventions.iter().map(|one| {
        let reason = one.reason.iter().map(|reason| format!(": {reason}"));
        let reason: String = reason.collect();
        format!(
            "\n{:<12} {} ({}, {}){reason}",
            one.state, one.what, one.by, one.at
        )
    }));
    text.extend(row.checkboxes.iter().map(|one| {
        let tick = if one.ticked { 'x' } else { ' ' };
        format!("\n- [{tick}] {} {}", one.id, one.text)
    }));
    text
}
