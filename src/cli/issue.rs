//! `ralph run --issue`

use std::sync::Arc;

use crate::assembly::issue::{ClaimedIssue, IssueResult};
use crate::assembly::{AssemblyErrorKind, RalphBuilder};
use crate::config::Config;
use crate::runner::RunOutcome;
use crate::state::RunOutcomeKind;

use super::run::{drive_to_end, start_watched, summarize};
use super::signals::Signals;
use super::terminal::EventFormat;
use super::{CliError, CliResult, Context};

/// Claims an issue, works on it, and shows the result there.
pub(super) async fn run(
    context: &Context,
    builder: RalphBuilder,
    config: &Config,
    number: u64,
    format: EventFormat,
) -> CliResult {
    // A signal from here on must not leave the claim behind.
    let mut signals = Signals::watch(&context.surroundings().host()).await?;
    let issue = Arc::new(ClaimedIssue::claim(&context.assembly, config, number).await?);
    let run = match start_watched(builder.issue(issue.clone()), &mut signals).await {
        Ok(run) => run,
        Err(error) => {
            issue.finish(result_of_error(&error), None).await?;
            return Err(error);
        }
    };
    let driven = tokio::select! {
        outcome = drive_to_end(context, &run, signals) => outcome,
        lost = issue.keep(&run.dir().facts().id) => {
            run.stop_sandbox().await?;
            return Err(lost);
        }
    };
    let result = match &driven {
        Ok(outcome) => result_of_run(outcome),
        Err(error) => result_of_error(error),
    };
    let finished = issue.finish(result, Some(run.dir())).await;
    let exit = summarize(context, run.dir(), &driven?, format)?;
    finished?;
    Ok(exit)
}

fn result_of_run(outcome: &RunOutcome) -> IssueResult {
    match outcome.kind {
        RunOutcomeKind::Done => IssueResult::Done {
            pull_request: outcome.pull_request.clone(),
        },
        RunOutcomeKind::Failed | RunOutcomeKind::Paused => IssueResult::NeedsAttention {
            reason: format!("{}: {}", outcome.kind, outcome.reason),
        },
        RunOutcomeKind::Stopped => IssueResult::Stopped,
    }
}

fn result_of_error(error: &CliError) -> IssueResult {
    match error.kind() {
        AssemblyErrorKind::Interrupted | AssemblyErrorKind::Paused => IssueResult::Stopped,
        AssemblyErrorKind::Usage | AssemblyErrorKind::Runtime => IssueResult::NeedsAttention {
            reason: match error.hint() {
                Some(hint) => format!("{error}\nhint: {hint}"),
                None => error.to_string(),
            },
        },
    }
}
