//! `ralph sandbox prune`, and `ralph prune-sandboxes`

use crate::clock::{Clock, SystemClock};
use crate::sandbox::{Listed, Removable};

use super::super::Context;
use super::super::error::{CliError, Exit};
use super::Kind;
use super::age::Age;
use super::ls::show;

/// Remove the sandboxes that are nobody's: their owner has ended, or their workspace is gone
#[derive(Debug, clap::Args)]
pub(in super::super) struct Args {
    #[command(flatten)]
    kind: Kind,
    /// Only those that are older, as in `90m`, `12h` or `7d`
    #[arg(long, value_name = "AGE")]
    max_age: Option<Age>,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(in super::super) async fn prune(context: &Context, args: Args) -> Result<Exit, CliError> {
    let provider = args.kind.provider(context)?;
    let mut listed = provider.list().await?;
    listed.retain(|one| one.standing.is_orphan() && is_old(one, args.max_age));
    let mut removed = Vec::new();
    for one in listed {
        if args.dry_run || provider.remove(&one.id, Removable::Orphans).await? {
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
    Ok(Exit::Success)
}

/// One whose age nobody knows is as old as any.
fn is_old(one: &Listed, max_age: Option<Age>) -> bool {
    match (max_age, one.created) {
        (Some(Age(age)), Some(created)) => {
            let lived = SystemClock.now().duration_since(created);
            lived.unsigned_abs() > age
        }
        (None, _) | (_, None) => true,
    }
}
