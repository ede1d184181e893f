//! `ralph init`

use std::path::PathBuf;

use crate::state::write_atomically;
use crate::task::starter;

use super::{CliError, CliExit, CliResult, Context};

/// Write a starter `ralph_task.md` and `ralph.toml`
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// The directory to write to; the current one by default
    dir: Option<PathBuf>,
    /// Overwrite files that exist
    #[arg(long)]
    force: bool,
}

pub(super) fn init(context: &Context, args: &InitArgs) -> CliResult {
    let current = context.surroundings().dir();
    let dir = args
        .dir
        .as_ref()
        .map_or(current.to_owned(), |dir| current.join(dir));
    let files = [("ralph_task.md", starter::TASK), ("ralph.toml", starter::CONFIG)];
    if !args.force
        && let Some((name, _)) = files.iter().find(|(name, _)| dir.join(name).exists())
    {
        return Err(
            CliError::usage(format!("`{}` already exists", dir.join(name).display()))
                .with_hint("`--force` overwrites it"),
        );
    }
    for (name, text) in files {
        write_atomically(&dir.join(name), text.as_bytes())?;
        context.ui.data(dir.join(name).display())?;
    }
    context.ui.say("Edit ralph_task.md, then: ralph lint, ralph run");
    Ok(CliExit::Success)
}
