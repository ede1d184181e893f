//! `ralph config`

use clap::Subcommand;

use crate::config::schema;
use crate::config::show::ConfigRow;

use super::ui::align_columns;
use super::{CliExit, CliResult, Context, configuration};

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
            let rows = configuration(context, Vec::new())?.rows();
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
