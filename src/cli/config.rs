//! `ralph config`

use clap::Subcommand;

use crate::config::schema;
use crate::config::show::ConfigRow;

use super::Context;
use super::error::{CliError, CliExit};
use super::overrides::configuration;
use super::ui::align_columns;

/// Show the configuration, or the schema of its file
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print each value, the layer it came from and where
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON schema of `ralph.toml`
    Schema,
}

pub(super) fn config(context: &Context, args: &ConfigArgs) -> Result<CliExit, CliError> {
    match args.command {
        ConfigCommand::Show { json } => {
            let rows = configuration(context, Vec::new())?.rows();
            if json {
                context.ui.json(&rows)?;
            } else {
                let cells: Vec<_> = rows.iter().map(ConfigRow::cells).collect();
                align_columns(&cells)
                    .iter()
                    .try_for_each(|line| context.ui.data(line))?;
            }
        }
        ConfigCommand::Schema => context.ui.json(&schema())?,
    }
    Ok(CliExit::Success)
}
