//! `ralph respond`

use crate::state::REVIEW_ROUNDS;
use crate::text::counted;

use super::resume::{ResumeArgs, resume};
use super::run::EventOutputArgs;
use super::{CliExit, CliResult, Context, activity, image, select_run};

/// Let a run work on what reviewers of its pull request ask for, and answer them
///
/// Reviews that request changes, comments on lines and other comments count, if their authors have write permission. The run goes on with
/// them, also if it was done, and then answers each thread with the commit. A run has two rounds of review.
#[derive(Debug, clap::Args)]
pub(super) struct RespondArgs {
    /// The run, or its pull request: `12`, `#12` or a URL; the newest run by default
    #[arg(value_name = "RUN|PR")]
    run: Option<String>,
    #[command(flatten)]
    image: image::RebuildFlag,
    #[command(flatten)]
    output: EventOutputArgs,
}

pub(super) async fn respond(context: &Context, args: RespondArgs) -> CliResult {
    let control = context.control()?;
    let run = match &args.run {
        Some(name) => control.find_reviewed(name).await?,
        None => select_run(context, None)?,
    };
    activity::begin("reading the reviews of the pull request");
    let news = control.take_reviews(&run).await?;
    let location = &news.location;
    if news.ignored > 0 {
        let ignored = counted(news.ignored, "comment");
        context.ui.say(format_args!(
            "{ignored} of people without write permission ignored"
        ));
    }
    if news.postponed > 0 {
        let postponed = counted(news.postponed, "comment");
        context.ui.say(format_args!(
            "warning: {postponed} too many for one round; `ralph respond` again takes them, at most {REVIEW_ROUNDS} rounds in all"
        ));
    }
    if !news.is_due {
        context
            .ui
            .say(format_args!("Nothing new from reviewers of {location}."));
        return Ok(CliExit::Success);
    }
    context.ui.say(format_args!(
        "{} of reviewers of {location}",
        counted(news.new, "new comment")
    ));
    let args = ResumeArgs {
        run: Some(run.facts().id.to_string()),
        note: None,
        image: args.image,
        output: args.output,
    };
    Box::pin(resume(context, args)).await
}
