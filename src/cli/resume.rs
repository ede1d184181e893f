//! `ralph resume`

use super::image;
use super::run::{EventOutputArgs, drive, start};
use super::select::select_id;
use super::terminal::EventFormat;
use super::{CliResult, Context};

/// Continue a run that was stopped, paused, killed or started on another host
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// The run; the newest one by default
    run: Option<String>,
    #[command(flatten)]
    image: image::RebuildFlag,
    #[command(flatten)]
    output: EventOutputArgs,
}

pub(super) async fn resume(context: &Context, args: ResumeArgs) -> CliResult {
    let run = select_id(context, args.run.as_deref())?;
    let format = EventFormat::from(args.output);
    let builder = context
        .builder(Vec::new())?
        .resume(run)
        .rebuild(args.image.into())
        .sink(format.sink(context.ui));
    let (run, signals) = start(context, builder).await?;
    drive(context, &run, signals, format).await
}
