//! `ralph rm` and `ralph prune`

use std::time::Duration;

use super::sandbox::parse_age;
use super::{CliExit, CliResult, Context};
use crate::assembly::queue::is_queued;
use crate::text::counted;

/// What to do after runs were removed.
const REMAINING: &str = "`ralph status` shows the runs that are left";

/// What to do after it was shown what would be removed.
pub(super) const WITHOUT_DRY_RUN: &str = "the same command without `--dry-run` removes them";

/// Remove runs whole: directory, refs and sandbox; their branches stay
#[derive(Debug, clap::Args)]
pub(super) struct RemoveArgs {
    /// The runs
    #[arg(required = true)]
    runs: Vec<String>,
}

/// Remove every run at rest in which nothing happened for some time; the branches stay
#[derive(Debug, clap::Args)]
pub(super) struct PruneArgs {
    /// For how long nothing happened, as in `12h`, `7d` or `4w`
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    older_than: Duration,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn remove(context: &Context, args: RemoveArgs) -> CliResult {
    let control = context.control()?;
    let queue = control.queue().await?;
    for name in &args.runs {
        let found = control.find(name);
        let id = if found.is_err() && control.remove_corrupt(name)? {
            name.clone()
        } else {
            let run = found?;
            control.remove_with_queue(queue.as_ref(), &run).await?;
            run.facts().id.to_string()
        };
        context.ui.say(format_args!("Removed run {id}."));
    }
    if let Some(queue) = queue {
        queue.close().await;
    }
    context.ui.next(REMAINING);
    Ok(CliExit::Success)
}

pub(super) async fn prune(context: &Context, args: PruneArgs) -> CliResult {
    let control = context.control()?;
    let queue = control.queue().await?;
    let mut pruned = 0;
    for run in control.older_than(args.older_than)? {
        let id = &run.facts().id;
        if let Some(queue) = &queue
            && is_queued(queue, id).await?
        {
            context
                .ui
                .say(format_args!("Run {id} is in the queue and stays."));
            continue;
        }
        if !args.dry_run {
            control.remove_with_queue(queue.as_ref(), &run).await?;
        }
        context.ui.data(id)?;
        pruned += 1;
    }
    if let Some(queue) = queue {
        queue.close().await;
    }
    if pruned == 0 {
        context.ui.say("No run at rest is that old: nothing to remove.");
        context.ui.next("`ralph status` lists the runs");
        return Ok(CliExit::Success);
    }
    let verb = if args.dry_run { "Would remove" } else { "Removed" };
    context.ui.say(format_args!("{verb} {}.", counted(pruned, "run")));
    context
        .ui
        .next(if args.dry_run { WITHOUT_DRY_RUN } else { REMAINING });
    Ok(CliExit::Success)
}
