//! `ralph sandbox prune`, and `ralph prune-sandboxes`

use jiff::Timestamp;

use crate::sandbox::{RemovalScope, SandboxListing};

use super::super::Context;
use super::super::error::{CliError, CliExit};
use super::ProviderArgs;
use super::age::AgeArg;
use super::ls::show;

/// Remove orphaned sandboxes: those whose owner has exited or whose workspace is gone
#[derive(Debug, clap::Args)]
pub(in super::super) struct PruneSandboxesArgs {
    #[command(flatten)]
    provider: ProviderArgs,
    /// Only those older than this, as in `90m`, `12h` or `7d`
    #[arg(long, value_name = "AGE")]
    max_age: Option<AgeArg>,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(in super::super) async fn prune(
    context: &Context,
    args: PruneSandboxesArgs,
) -> Result<CliExit, CliError> {
    let provider = args.provider.connect(context)?;
    let now = context.surroundings().now();
    let mut listed = provider.list().await?;
    listed.retain(|one| one.standing.is_orphan() && is_old(one, args.max_age, now));
    let mut removed = Vec::new();
    for one in listed {
        if args.dry_run || provider.remove(&one.id, RemovalScope::Orphans).await? {
            removed.push(one);
        }
    }
    show(context, &removed, args.json)?;
    context.ui.say(format_args!(
        "{} {} of {} sandboxes.",
        if args.dry_run { "Would remove" } else { "Removed" },
        removed.len(),
        provider.name()
    ));
    Ok(CliExit::Success)
}

/// A sandbox of unknown age counts as old.
fn is_old(one: &SandboxListing, max_age: Option<AgeArg>, now: Timestamp) -> bool {
    match (max_age, one.created) {
        (Some(AgeArg(age)), Some(created)) => {
            let lived = now.duration_since(created);
            lived.unsigned_abs() > age
        }
        (None, _) | (_, None) => true,
    }
}
