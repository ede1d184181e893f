//! Which run a command means.

use crate::id::RunId;
use crate::state::{RunDir, Runs};

use super::error::CliError;

/// Which runs a command can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that are being worked on.
    Live,
    /// All of them.
    Any,
}

/// The run that was named, else the only one (of the live ones) or the newest one (of all).
pub(super) fn select(runs: &Runs, named: Option<&RunId>, which: Which) -> Result<RunDir, CliError> {
    if let Some(id) = named {
        let run = runs.open(id)?;
        if which == Which::Live && run.holder()?.is_none() {
            return Err(CliError::usage(format!("run `{id}` is not being worked on"))
                .hint(format!("`ralph resume {id}` takes it up again")));
        }
        return Ok(run);
    }
    let mut candidates = runs.list()?;
    if which == Which::Live {
        candidates.retain(|run| run.holder().is_ok_and(|holder| holder.is_some()));
    }
    let newest = candidates.pop();
    match (which, newest, candidates.as_slice()) {
        (Which::Live, Some(newest), [_, ..]) => {
            let mut ids: Vec<&str> = candidates.iter().map(|run| run.facts().id.as_str()).collect();
            ids.push(newest.facts().id.as_str());
            Err(
                CliError::usage(format!("several runs are being worked on: {}", ids.join(", ")))
                    .hint("name the one you mean"),
            )
        }
        (_, Some(newest), _) => Ok(newest),
        (Which::Live, None, _) => {
            Err(CliError::usage("no run is being worked on").hint("`ralph status` lists the runs"))
        }
        (Which::Any, None, _) => Err(CliError::usage("there are no runs yet").hint("`ralph run` starts one")),
    }
}
