//! `ralph sandbox rm`

use crate::sandbox::{Removable, Standing};

use super::super::Context;
use super::super::error::{CliError, Exit};
use super::{Kind, named};

/// Remove a sandbox; its run goes on from the last checkpoint, in a new one
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    kind: Kind,
    /// The sandboxes, or their runs
    #[arg(required = true)]
    sandboxes: Vec<String>,
    /// Also one that a run is working in at this moment
    #[arg(long)]
    force: bool,
}

pub(super) async fn rm(context: &Context, args: Args) -> Result<Exit, CliError> {
    let provider = args.kind.provider(context)?;
    for name in &args.sandboxes {
        let listed = named(provider.as_ref(), name).await?;
        if listed.standing == Standing::InUse && !args.force {
            return Err(CliError::usage(format!("`{}` is in use", listed.id))
                .hint("`ralph stop` ends its run; `--force` removes it all the same"));
        }
        if provider.remove(&listed.id, Removable::Any).await? {
            context.ui.say(format_args!("Removed {}.", listed.id));
        }
    }
    Ok(Exit::Success)
}
