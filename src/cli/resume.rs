//! `ralph resume`

use crate::id::RunId;

use super::image;
use super::run::{EventOutputArgs, drive, start};
use super::terminal::EventFormat;
use super::{CliResult, Context, select_run};

/// Continue a run that was stopped, paused, killed or started on another host
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// The run; the newest one by default
    run: Option<RunId>,
    #[command(flatten)]
    image: image::RebuildFlag,
    #[command(flatten)]
    output: EventOutputArgs,
}

pub(super) async fn resume(context: &Context, args: ResumeArgs) -> CliResult {
    let run = match args.run {
        Some(run) => run,
        None => select_run(context, None)?.facts().id.clone(),
    };
    let format = EventFormat::from(args.output);
    let builder = context
        .builder(Vec::new())?
        .resume(run)
        .rebuild(args.image.into())
        .sink(format.sink(context.ui));
    let (run, signals) = start(context, builder).await?;
    drive(context, &run, signals, format).await
}
