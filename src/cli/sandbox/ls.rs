//! `ralph sandbox ls`

use super::{ProviderArgs, SandboxListing};
use crate::cli::{CliError, CliExit, CliResult, Context};

/// List the sandboxes of all runs and their owners
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListSandboxesArgs {
    #[command(flatten)]
    provider: ProviderArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn ls(context: &Context, args: ListSandboxesArgs) -> CliResult {
    let listed = args.provider.connect(context)?.list().await?;
    show(context, &listed, args.json)?;
    if listed.is_empty() && !args.json {
        context.ui.say("No sandboxes.");
    }
    Ok(CliExit::Success)
}

/// Prints sandboxes as JSON, or one per line.
pub(super) fn show(context: &Context, listed: &[SandboxListing], json: bool) -> Result<(), CliError> {
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
