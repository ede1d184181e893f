//! `ralph sandbox ls`

use super::super::Context;
use super::super::error::{CliError, Exit};
use super::{Kind, Listed};

/// List sandboxes, of whatever run, and who has them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    kind: Kind,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn ls(context: &Context, args: Args) -> Result<Exit, CliError> {
    let listed = args.kind.provider(context)?.list().await?;
    show(context, &listed, args.json)?;
    if listed.is_empty() && !args.json {
        context.ui.say("No sandboxes.");
    }
    Ok(Exit::Success)
}

/// Shows sandboxes as JSON, or as a line each.
pub(super) fn show(context: &Context, listed: &[Listed], json: bool) -> Result<(), CliError> {
    if json {
        return context.ui.json(&listed);
    }
    let widest = listed.iter().map(|one| one.id.len()).max().unwrap_or_default();
    for one in listed {
        let run = one.run.as_ref().map_or("-", |run| run.as_str());
        let owner = one.owner.as_deref().unwrap_or("unknown");
        context.ui.data(format_args!(
            "{:<widest$}  {run:<10}  {:<8}  {:<14}  {owner}",
            one.id,
            one.activity.name(),
            one.standing.describe(),
        ))?;
    }
    Ok(())
}
