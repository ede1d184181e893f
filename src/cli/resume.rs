//! `ralph resume`

use crate::state::Intervention;

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
    /// Leave this note first, for example as an answer to an agent that is blocked
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    note: Option<String>,
    #[command(flatten)]
    image: image::RebuildFlag,
    #[command(flatten)]
    output: EventOutputArgs,
}

pub(super) async fn resume(context: &Context, args: ResumeArgs) -> CliResult {
    let run = select_id(context, args.run.as_deref())?;
    if let Some(text) = args.note {
        let (control, note) = (context.control()?, Intervention::Note { text });
        control.intervene(&control.find(run.as_str())?, note)?;
    }
    let format = EventFormat::from(args.output);
    let builder = context
        .builder(Vec::new())?
        .resume(run)
        .rebuild(args.image.into())
        .sink(format.sink(context.ui));
    let (run, signals) = start(context, builder).await?;
    drive(context, &run, signals, format).await
}
