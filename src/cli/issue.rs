//! `ralph run --issue`, and `ralph resume` of its run

use std::sync::Arc;

use tokio::sync::watch;

use crate::assembly::RalphBuilder;
use crate::assembly::issue::ClaimedIssue;
use crate::service::{WorkOrder, work_on_issue};

use super::run::{PREPARING, RALPH, say_how_to_merge, summarize};
use super::signals::Signals;
use super::terminal::EventFormat;
use super::{CliError, CliResult, Context, activity};

/// Works on a claimed issue, and shows the result there.
pub(super) async fn work(
    context: &Context,
    builder: RalphBuilder,
    issue: Arc<ClaimedIssue>,
    signals: Signals,
    format: EventFormat,
) -> CliResult {
    let (order, orders) = watch::channel(WorkOrder::GoOn);
    let (started, _run) = watch::channel(None);
    let surroundings = context.surroundings();
    activity::begin(PREPARING);
    let ended = tokio::select! {
        ended = Box::pin(work_on_issue(surroundings, issue, builder, orders, started)) => ended,
        error = forward(context, signals, &order) => return Err(error),
    };
    let exit = match (ended.run, ended.outcome) {
        (Some(run), Ok(outcome)) => {
            let exit = summarize(context, &run, &outcome, format, Some(RALPH))?;
            say_how_to_merge(context, &run, &outcome);
            exit
        }
        (_, Err(error)) => {
            if let Some(Err(shown)) = ended.shown {
                context.ui.error(&shown);
            }
            return Err(error);
        }
        (None, Ok(_)) => super::CliExit::Success,
    };
    match ended.shown {
        Some(Err(error)) => Err(error),
        _ => Ok(exit),
    }
}

/// Passes signals on: the first one stops, the second one ends runs at once, the third one does not wait for GitHub either.
pub(super) async fn forward(
    context: &Context,
    signals: Signals,
    order: &watch::Sender<WorkOrder>,
) -> CliError {
    let said = [
        "Stopping. The work goes on later from the last iteration; press Ctrl-C again to end at once.",
        "Ending. Press Ctrl-C again to leave the issues claimed; the claims end by themselves.",
    ];
    signals.forward(context.ui, order, WorkOrder::Stop, said).await;
    CliError::interrupted("ended before the issues were ready again")
        .with_hint("`ralph poll` takes them over once their claims have ended")
}
