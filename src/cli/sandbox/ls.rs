//! `ralph sandbox ls`

use super::{ProviderArgs, SandboxListing};
use crate::cli::{CliError, CliExit, CliResult, Context};

/// List the sandboxes of all runs and their owners
///
/// Those of other data directories (`RALPH_HOME`) are listed with `--all` only.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ListSandboxesArgs {
    #[command(flatten)]
    provider: ProviderArgs,
    /// Those of other data directories too
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn ls(context: &Context, args: ListSandboxesArgs) -> CliResult {
    let mut listed = args.provider.connect(context)?.list().await?;
    let found = listed.len();
    listed.retain(|one| args.all || one.is_own);
    show(context, &listed, args.json)?;
    if listed.is_empty() && !args.json {
        context.ui.say("No sandboxes.");
    }
    let hidden = found - listed.len();
    if hidden > 0 && !args.json {
        context.ui.say(format_args!(
            "{hidden} more of other data directories: `--all` lists them."
        ));
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
