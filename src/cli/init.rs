//! `ralph init`

use std::path::PathBuf;

use crate::state::write_atomically;
use crate::task::starter;

use super::Context;
use super::error::{CliError, Exit};

/// Write a starter `ralph_task.md` and `ralph.toml`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to; the current directory by default
    dir: Option<PathBuf>,
    /// Replace files that are there already
    #[arg(long)]
    force: bool,
}

pub(super) fn init(context: &Context, args: &Args) -> Result<Exit, CliError> {
    let dir = args
        .dir
        .as_ref()
        .map_or(context.surroundings().cwd.clone(), |dir| {
            context.surroundings().cwd.join(dir)
        });
    let files = [("ralph_task.md", starter::TASK), ("ralph.toml", starter::CONFIG)];
    if !args.force
        && let Some((name, _)) = files.iter().find(|(name, _)| dir.join(name).exists())
    {
        return Err(
            CliError::usage(format!("`{}` is there already", dir.join(name).display()))
                .hint("`--force` replaces it"),
        );
    }
    for (name, text) in files {
        write_atomically(&dir.join(name), text.as_bytes())?;
        context.ui.data(dir.join(name).display())?;
    }
    context.ui.say("Edit ralph_task.md, then: ralph lint, ralph run");
    Ok(Exit::Success)
}
