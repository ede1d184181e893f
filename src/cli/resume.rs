//! `ralph resume`

use crate::assembly::issue_queue::IssueQueue;
use crate::state::Intervention;

use super::run::{EventOutputArgs, drive, start};
use super::select::select_id;
use super::signals::Signals;
use super::terminal::EventFormat;
use super::{CliResult, Context};
use super::{image, issue};

/// Continue a run that was stopped, paused, killed or started on another host
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// The run; the newest one by default
    pub(super) run: Option<String>,
    /// Leave this note first, for example as an answer to an agent that is blocked
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) note: Option<String>,
    #[command(flatten)]
    pub(super) image: image::RebuildFlag,
    #[command(flatten)]
    pub(super) output: EventOutputArgs,
}

pub(super) async fn resume(context: &Context, args: ResumeArgs) -> CliResult {
    let run = select_id(context, args.run.as_deref())?;
    if let Some(text) = args.note {
        let (control, note) = (context.control()?, Intervention::Note { text });
        control.intervene(&control.find(run.as_str())?, note)?;
    }
    let format = EventFormat::from(args.output);
    let dir = context.control()?.look_up(run.as_str())?;
    let builder = context
        .builder(Vec::new())?
        .resume(run)
        .rebuild(args.image.into())
        .sink(format.sink(context.ui));
    if let Some(dir) = dir {
        // A signal from here on must not leave the claim behind.
        let signals = Signals::watch(&context.surroundings().host()).await?;
        let given = context.global.given(Vec::new())?;
        if let Some(claimed) = IssueQueue::claim_of_run(&context.assembly, given, &dir).await? {
            return Box::pin(issue::work(context, builder, claimed, signals, format)).await;
        }
    }
    let (run, signals) = start(context, builder).await?;
    drive(context, &run, signals, format).await
}
