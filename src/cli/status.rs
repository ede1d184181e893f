//! `ralph status`

use crate::assembly::RunStatus;

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

pub(super) fn status(context: &Context, args: &StatusArgs) -> CliResult {
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
    if !args.json {
        context.ui.next(next_step(&rows));
    }
    Ok(CliExit::Success)
}

/// What to do with these runs, the newest of which is last.
fn next_step(rows: &[RunStatus]) -> String {
    let in_state = |names: &[&str]| rows.iter().rfind(|row| names.contains(&row.state.as_str()));
    if let Some(row) = in_state(&["running"]) {
        format!("`ralph watch {}` shows it at work", row.run)
    } else if let Some(row) = in_state(&["paused", "stopped", "interrupted"]) {
        format!("`ralph resume {}` continues it", row.run)
    } else if let Some(row) = in_state(&["failed"]) {
        format!(
            "`ralph logs {0}` shows why it failed; `ralph resume {0}` continues it",
            row.run
        )
    } else {
        "`ralph status RUN` shows the branch and the pull request of one".to_owned()
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
