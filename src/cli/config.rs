//! `ralph config`

use clap::Subcommand;

use crate::assembly::configuration::{TaskFile, load};
use crate::config::schema;
use crate::config::show::ConfigRow;
use crate::text::one_line;

use super::ui::align_columns;
use super::{CliExit, CliResult, Context};

/// Show the configuration, or the schema of its file
#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print each value, the layer it came from and where
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON schema of `ralph.toml`
    Schema,
}

pub(super) fn config(context: &Context, command: ConfigCommand) -> CliResult {
    match command {
        ConfigCommand::Show { json } => {
            let task = TaskFile::here(&context.assembly).unwrap_or_else(|error| {
                let why = one_line(&error.to_string());
                let ui = context.ui;
                ui.say(format_args!(
                    "warning: the settings of the task are left out: {why}"
                ));
                None
            });
            let given = context.global.given(Vec::new())?;
            let rows = load(&context.assembly, task.as_ref(), &given)?.rows();
            let cells: Vec<_> = rows.iter().map(ConfigRow::cells).collect();
            context.ui.report(json, &rows, align_columns(&cells))?;
            context.ui.next(
                "change a value in `ralph.toml`, or for one run with `ralph run --set KEY=VALUE`; `ralph config schema` describes each",
            );
        }
        ConfigCommand::Schema => context.ui.json(&schema())?,
    }
    Ok(CliExit::Success)
}
