//! Finds the run that a command is about.

use crate::id::RunId;
use crate::state::RunDir;

use super::{CliError, Context};

/// The named run, else the newest one.
pub(super) fn select_run(context: &Context, named: Option<&str>) -> Result<RunDir, CliError> {
    if let Some(name) = named {
        return context.control()?.find(name);
    }
    let newest = context.surroundings().runs()?.list()?.pop();
    newest.ok_or_else(|| CliError::usage("there are no runs yet").with_hint("`ralph run` starts one"))
}

/// The id of the named run, else of the newest one. A run of another host is known by its whole id only.
pub(super) fn select_id(context: &Context, named: Option<&str>) -> Result<RunId, CliError> {
    if let Some(name) = named
        && let (None, Ok(id)) = (context.control()?.look_up(name)?, RunId::parse(name))
    {
        return Ok(id);
    }
    Ok(select_run(context, named)?.facts().id.clone())
}

/// The named run, else the only one that a process is working on.
pub(super) fn select_live_run(context: &Context, named: Option<&str>) -> Result<RunDir, CliError> {
    if let Some(name) = named {
        return context.control()?.find(name);
    }
    let mut live = context.surroundings().runs()?.list()?;
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
