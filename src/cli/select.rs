//! Finds the run that a command is about.

use crate::id::RunId;
use crate::state::RunDir;

use super::{CliError, Context};

/// The named run, else the newest one.
pub(super) fn select_run(context: &Context, named: Option<&RunId>) -> Result<RunDir, CliError> {
    let runs = context.surroundings().runs()?;
    if let Some(id) = named {
        return Ok(runs.open(id)?);
    }
    let newest = runs.list()?.pop();
    newest.ok_or_else(|| CliError::usage("there are no runs yet").with_hint("`ralph run` starts one"))
}

/// The named run, else the only one that a process is working on.
pub(super) fn select_live_run(context: &Context, named: Option<&RunId>) -> Result<RunDir, CliError> {
    let runs = context.surroundings().runs()?;
    if let Some(id) = named {
        let run = runs.open(id)?;
        if !is_live(&run) {
            return Err(CliError::usage(format!("run `{id}` is not live"))
                .with_hint(format!("`ralph resume {id}` continues it")));
        }
        return Ok(run);
    }
    let mut live = runs.list()?;
    live.retain(is_live);
    if live.len() > 1 {
        let ids: Vec<&str> = live.iter().map(|run| run.facts().id.as_str()).collect();
        let message = format!("several runs are live: {}", ids.join(", "));
        return Err(CliError::usage(message).with_hint("name one of them"));
    }
    let only = live.pop();
    only.ok_or_else(|| CliError::usage("no run is live").with_hint("`ralph status` lists the runs"))
}

/// Whether a process is working on a run.
pub(super) fn is_live(run: &RunDir) -> bool {
    run.holder().is_ok_and(|holder| holder.is_some())
}
