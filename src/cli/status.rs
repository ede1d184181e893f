//! `ralph status`

use crate::assembly::RunStatus;
use crate::id::RunId;
use crate::store::QueueState;

use super::run::how_to_merge;
use super::submit::open_store;
use super::ui::align_columns;
use super::{CliExit, CliResult, Context};

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
    let details = rows.iter().filter(|_| args.run.is_some()).map(details);
    context
        .ui
        .report(args.json, &rows, table(&rows) + &details.collect::<String>())?;
    if args.json {
        return Ok(CliExit::Success);
    }
    let running = rows.iter().rfind(|row| row.state == "running");
    if let Some(row) = running.or(rows.last()) {
        context.ui.next(next_step(row, is_queued(context, row).await));
    }
    Ok(CliExit::Success)
}

/// Whether a run waits for a worker. Its journal does not say so, and a queue that cannot be read does not matter here.
async fn is_queued(context: &Context, row: &RunStatus) -> bool {
    let Some(run) = RunId::parse(&row.run).ok().filter(|_| row.state == "interrupted") else {
        return false;
    };
    let Ok(store) = open_store(context).await else {
        return false;
    };
    let queued = store.queue_row(&run).await;
    store.close().await;
    queued.is_ok_and(|row| row.is_some_and(|row| row.state == QueueState::Queued))
}

/// What to do with this run.
fn next_step(row: &RunStatus, is_queued: bool) -> String {
    let run = &row.run;
    match row.state.as_str() {
        "running" => format!("`ralph watch {run}` shows it at work"),
        "done" => how_to_merge(row.pull_request.as_deref(), &row.branch),
        "failed" | "broken" => {
            format!("`ralph logs {run}` shows why it failed; `ralph resume {run}` continues it")
        }
        _ if is_queued => format!("run {run} is queued: `ralph worker` works on it"),
        _ => format!("`ralph resume {run}` continues it"),
    }
}

fn table(rows: &[RunStatus]) -> String {
    let mut cells = vec![["RUN", "STATE", "ITERATIONS", "BOXES", "COST", "TASK"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let ticked = row.checkboxes.iter().filter(|one| one.ticked).count();
        let cost = if row.unpriced_calls > 0 {
            "unknown".to_owned()
        } else {
            format!("${:.4}", row.cost_usd)
        };
        [
            row.run.clone(),
            row.state.clone(),
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
