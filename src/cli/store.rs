//! `ralph store`

use clap::Subcommand;

use super::{CliExit, CliResult, Context, configuration};
use crate::assembly::store::{rebuild_index, store_address};
use crate::text::counted;

/// Work on the store: the index of runs and the queue, in `RALPH_DB_URL` or a file of SQLite
#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Write the index of runs again, from the runs of this host and the state refs of their repositories, of the
    /// current one and of `git.state_remote`; the queue stays
    Rebuild,
}

pub(super) async fn store(context: &Context, command: StoreCommand) -> CliResult {
    match command {
        StoreCommand::Rebuild => {
            let config = configuration(context, Vec::new())?;
            let address = store_address(context.surroundings(), &config)?;
            let runs = rebuild_index(&context.assembly, &config).await?;
            context
                .ui
                .say(format_args!("Indexed {} in {address}.", counted(runs, "run")));
            context.ui.next("`ralph status` lists the runs");
        }
    }
    Ok(CliExit::Success)
}
