//! `ralph diff`

use crate::scm::{Checkpoints, Repository};

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
    let repo = Repository::open(context.surroundings().host(), &run.facts().repository).await?;
    let checkpoints = Checkpoints::new(repo.clone(), run.facts().id.clone());
    let Some(checkpoint) = checkpoints.load().await? else {
        context.ui.say("Nothing yet.");
        return Ok(CliExit::Success);
    };
    let text = repo
        .diff_text(&run.facts().base, &checkpoint.work_tree, args.stat)
        .await?;
    match text.trim_end_matches('\n') {
        "" => context.ui.say("Nothing yet."),
        text if args.raw => context.ui.raw(text)?,
        text => context.ui.data(text)?,
    }
    Ok(CliExit::Success)
}
