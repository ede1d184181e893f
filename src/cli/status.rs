//! `ralph status`

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use crate::event::RunEnd;
use crate::runner::{self, Ledger};
use crate::state::{InterventionRequest, JournalEntry, JournalLine, RunDir};
use crate::task::{CheckboxId, Task};

use super::ui::align_columns;
use super::{CliError, CliExit, CliResult, Context};

/// List the runs and their states
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Only this run, with its checkboxes
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A run in the output of `--json`. Independent of the stored format, which may change.
#[derive(Debug, Serialize)]
struct RunStatus {
    run: String,
    state: String,
    reason: Option<String>,
    pid: Option<u32>,
    task: String,
    repository: String,
    branch: String,
    iterations: u32,
    checkboxes: Vec<CheckboxStatus>,
    loop_score: Option<f64>,
    tokens: u64,
    cost_usd: f64,
    unpriced_calls: u64,
    worked_seconds: u64,
    created: String,
    pull_request: Option<String>,
    interventions: Vec<InterventionStatus>,
}

#[derive(Debug, Serialize)]
struct InterventionStatus {
    id: String,
    by: String,
    at: String,
    what: String,
    /// `pending`, `done` or `refused`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct CheckboxStatus {
    id: String,
    text: String,
    ticked: bool,
}

pub(super) fn status(context: &Context, args: &StatusArgs) -> CliResult {
    let runs = context.surroundings().runs()?;
    let listed = match &args.run {
        Some(name) => vec![context.control()?.find(name)?],
        None => runs.list()?,
    };
    let rows = listed.iter().map(status_of).collect::<Result<Vec<_>, _>>()?;
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
    Ok(CliExit::Success)
}

fn status_of(run: &RunDir) -> Result<RunStatus, CliError> {
    let facts = run.facts();
    let lines = run.journal()?;
    let task = facts.task_after(&lines);
    let ticked = runner::ticked_after(facts, &lines).unwrap_or_default();
    let holder = run.holder()?;
    let ledger = Ledger::from_journal(&lines, Duration::ZERO);
    let last = lines.iter().rev().find_map(|line| match &line.entry {
        JournalEntry::Recorded(record) => Some(record.as_ref()),
        _ => None,
    });
    let (state, reason) = match (&holder, lines.last().map(|line| &line.entry)) {
        (Some(_), _) => ("running".to_owned(), None),
        (None, Some(JournalEntry::Ended { outcome, reason })) => (outcome.to_string(), Some(reason.clone())),
        (None, Some(JournalEntry::Broken { reason })) => (RunEnd::Broken.to_string(), Some(reason.clone())),
        (None, _) => ("interrupted".to_owned(), None),
    };
    let file = run.pull_request_file();
    let pull_request = lines.iter().rev().find_map(|line| match &line.entry {
        JournalEntry::PullRequest { location, .. } => Some(location.clone()),
        _ => file.exists().then(|| file.display().to_string()),
    });
    Ok(RunStatus {
        run: facts.id.to_string(),
        state,
        reason,
        pid: holder.map(|owner| owner.pid),
        task: Task::parse(task).map_or_else(|_| String::new(), |task| task.title().to_owned()),
        repository: facts.repository.display().to_string(),
        branch: facts.branch.clone(),
        iterations: ledger.iterations,
        checkboxes: checkboxes(task, &ticked),
        loop_score: last.map(|record| record.score.total),
        tokens: ledger.tokens.total(),
        cost_usd: ledger.cost.dollars(),
        unpriced_calls: ledger.unpriced_calls,
        worked_seconds: ledger.worked.as_secs(),
        created: facts.created.to_string(),
        pull_request,
        interventions: interventions(run, &lines)?,
    })
}

/// What people asked for: what was handled first, then what waits.
fn interventions(run: &RunDir, lines: &[JournalLine]) -> Result<Vec<InterventionStatus>, CliError> {
    let show = |asked: &InterventionRequest, state, reason: Option<&String>| InterventionStatus {
        id: asked.id.clone(),
        by: asked.by.clone(),
        at: asked.at.to_string(),
        what: asked.intervention.summary(),
        state,
        reason: reason.cloned(),
    };
    let mut shown: Vec<InterventionStatus> = lines
        .iter()
        .filter_map(|line| match &line.entry {
            JournalEntry::Intervened { asked, refused } => {
                let state = if refused.is_some() { "refused" } else { "done" };
                Some(show(asked, state, refused.as_ref()))
            }
            _ => None,
        })
        .collect();
    for asked in run.inbox().pending()? {
        if !shown.iter().any(|one| one.id == asked.id) {
            shown.push(show(&asked, "pending", None));
        }
    }
    Ok(shown)
}

fn checkboxes(task: &str, ticked: &BTreeSet<CheckboxId>) -> Vec<CheckboxStatus> {
    let checkboxes = Task::parse(task).map(|task| task.checkboxes).unwrap_or_default();
    let show = |one: crate::task::Checkbox| CheckboxStatus {
        ticked: ticked.contains(&one.id),
        text: one.text,
        id: one.id.to_string(),
    };
    checkboxes.into_iter().map(show).collect()
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
