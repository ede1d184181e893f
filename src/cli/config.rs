//! `ralph config`

use clap::Subcommand;

use crate::config::{schema, show};

use super::Context;
use super::error::{CliError, Exit};
use super::overrides::configuration;

/// Show the configuration, or the schema of its file
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print each value, the layer it came from and where
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON schema of `ralph.toml`
    Schema,
}

pub(super) fn config(context: &Context, args: &Args) -> Result<Exit, CliError> {
    match args.what {
        What::Show { json } => {
            let rows = configuration(context, None, Vec::new())?.rows();
            if json {
                context.ui.json(&rows)?;
            } else {
                context.ui.data(show::as_text(&rows).trim_end())?;
            }
        }
        What::Schema => context.ui.json(&schema())?,
    }
    Ok(Exit::Success)
}
