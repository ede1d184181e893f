//! Finds the run that a command is about.

use crate::id::RunId;
use crate::state::RunDir;

use super::Context;
use super::error::CliError;

/// Which runs a command can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunFilter {
    /// Those that a process is working on.
    Live,
    /// All of them.
    Any,
}

/// The named run, else the only live one or, of all runs, the newest one.
pub(super) fn select_run(
    context: &Context,
    named: Option<&RunId>,
    filter: RunFilter,
) -> Result<RunDir, CliError> {
    let runs = context.surroundings().runs()?;
    if let Some(id) = named {
        let run = runs.open(id)?;
        if filter == RunFilter::Live && !is_live(&run) {
            return Err(CliError::usage(format!("run `{id}` is not live"))
                .with_hint(format!("`ralph resume {id}` continues it")));
        }
        return Ok(run);
    }
    let mut candidates = runs.list()?;
    if filter == RunFilter::Live {
        candidates.retain(is_live);
    }
    match (filter, candidates.pop(), candidates.as_slice()) {
        (RunFilter::Live, Some(newest), [_, ..]) => {
            candidates.push(newest);
            let ids: Vec<&str> = candidates.iter().map(|run| run.facts().id.as_str()).collect();
            Err(
                CliError::usage(format!("several runs are live: {}", ids.join(", ")))
                    .with_hint("name one of them"),
            )
        }
        (_, Some(newest), _) => Ok(newest),
        (RunFilter::Live, None, _) => {
            Err(CliError::usage("no run is live").with_hint("`ralph status` lists the runs"))
        }
        (RunFilter::Any, None, _) => {
            Err(CliError::usage("there are no runs yet").with_hint("`ralph run` starts one"))
        }
    }
}

/// Whether a process is working on a run.
pub(super) fn is_live(run: &RunDir) -> bool {
    run.holder().is_ok_and(|holder| holder.is_some())
}
