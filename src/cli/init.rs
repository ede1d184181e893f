//! `ralph init`

use std::path::PathBuf;

use crate::state::write_atomically;
use crate::task::{proposed_setup, starter};

use super::doctor::ask_engine;
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

pub(super) async fn init(context: &Context, args: InitArgs) -> CliResult {
    let current = context.surroundings().dir();
    let dir = args
        .dir
        .as_ref()
        .map_or(current.to_owned(), |dir| current.join(dir));
    let (task, config) = (dir.join("ralph_task.md"), dir.join("ralph.toml"));
    if !args.force
        && let Some(existing) = [&task, &config].into_iter().find(|path| path.exists())
    {
        return Err(
            CliError::usage(format!("`{}` already exists", existing.display()))
                .with_hint("`--force` overwrites it"),
        );
    }
    let engine = ask_engine(context).await;
    let settings = match &engine {
        Ok(_) => starter::CONFIG,
        Err(_) => starter::LOCAL_CONFIG,
    };
    let text = starter_task(proposed_setup(|file| dir.join(file).exists()));
    for (path, text) in [(task, text.as_str()), (config, settings)] {
        write_atomically(&path, text.as_bytes())?;
        context.ui.data(path.display())?;
    }
    context.ui.say(match engine {
        Ok(engine) => format!("ralph.toml sets `docker` as the sandbox: {engine} answers."),
        Err(reason) => format!(
            "warning: ralph.toml sets `local` as the sandbox, which isolates nothing: {reason}. With a container engine, \
             `ralph init --force` sets `docker`."
        ),
    });
    context.ui.say("Edit ralph_task.md, then: ralph lint, ralph run");
    Ok(CliExit::Success)
}

/// The starter task, with this `setup_command`.
fn starter_task(setup: Option<String>) -> String {
    match setup {
        Some(command) => {
            let line = format!("\nsetup_command: {command}\n");
            starter::TASK.replacen("\n# setup_command: cargo fetch\n", &line, 1)
        }
        None => starter::TASK.to_owned(),
    }
}
