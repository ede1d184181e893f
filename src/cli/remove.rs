//! `ralph rm` and `ralph prune`

use std::time::Duration;

use super::sandbox::parse_age;
use super::{CliExit, CliResult, Context};
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
    for name in &args.runs {
        let found = control.find(name);
        let id = if found.is_err() && control.remove_corrupt(name)? {
            name.clone()
        } else {
            let run = found?;
            control.remove(&run).await?;
            run.facts().id.to_string()
        };
        context.ui.say(format_args!("Removed run {id}."));
    }
    context.ui.next(REMAINING);
    Ok(CliExit::Success)
}

pub(super) async fn prune(context: &Context, args: PruneArgs) -> CliResult {
    let control = context.control()?;
    let runs = control.older_than(args.older_than)?;
    for run in &runs {
        if !args.dry_run {
            control.remove(run).await?;
        }
        context.ui.data(&run.facts().id)?;
    }
    if runs.is_empty() {
        context.ui.say("No run at rest is that old: nothing to remove.");
        context.ui.next("`ralph status` lists the runs");
        return Ok(CliExit::Success);
    }
    let verb = if args.dry_run { "Would remove" } else { "Removed" };
    context
        .ui
        .say(format_args!("{verb} {}.", counted(runs.len(), "run")));
    context
        .ui
        .next(if args.dry_run { WITHOUT_DRY_RUN } else { REMAINING });
    Ok(CliExit::Success)
}
