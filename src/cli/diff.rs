//! `ralph diff`

use super::{CliExit, CliResult, Context, select_run};

/// Show what a run has changed so far, uncommitted work included
#[derive(Debug, clap::Args)]
pub(super) struct DiffArgs {
    /// The run; the newest one by default
    run: Option<String>,
    /// Only the names of files and how much changed in each
    #[arg(long)]
    stat: bool,
    /// Print control characters as they are, for a patch that is applied and not read
    #[arg(long)]
    raw: bool,
}

pub(super) async fn diff(context: &Context, args: DiffArgs) -> CliResult {
    let run = select_run(context, args.run.as_deref())?;
    let text = context.control()?.diff(&run, None, args.stat).await?;
    match text.unwrap_or_default().trim_end_matches('\n') {
        "" => context.ui.say("Nothing yet."),
        text if args.raw => context.ui.raw(text)?,
        text => context.ui.data(text)?,
    }
    Ok(CliExit::Success)
}
