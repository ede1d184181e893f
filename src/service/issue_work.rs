//! The work on one claimed issue, from the start of its run to the result on the issue.

use std::sync::Arc;

use tokio::sync::watch;

use crate::assembly::issue::{ClaimedIssue, IssueResult};
use crate::assembly::{ActiveRun, AssemblyError, AssemblyErrorKind, RalphBuilder, Surroundings};
use crate::runner::RunOutcome;
use crate::state::{Intervention, InterventionRequest, RunDir, RunOutcomeKind};

/// What the work on an issue is asked to do. Each asks for more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkOrder {
    /// Go on.
    GoOn,
    /// Finish the iteration, then end.
    Pause,
    /// End after a clean-up.
    Stop,
    /// End at once.
    End,
}

/// The work on an issue that ended.
pub(crate) struct EndedWork {
    /// Its run. `None` if it did not start.
    pub(crate) run: Option<RunDir>,
    /// How the run ended.
    pub(crate) outcome: Result<RunOutcome, AssemblyError>,
    /// What the issue shows, or why that failed. `None` if another process has the issue.
    pub(crate) shown: Option<Result<IssueResult, AssemblyError>>,
}

/// Works on an issue until its run ends, and shows the result on the issue. `started` gets the run once it exists.
pub(crate) async fn work_on_issue(
    surroundings: &Surroundings,
    issue: Arc<ClaimedIssue>,
    builder: RalphBuilder,
    mut orders: watch::Receiver<WorkOrder>,
    started: watch::Sender<Option<RunDir>>,
) -> EndedWork {
    let run = match start(&issue, builder, &mut orders).await {
        Ok(run) => run,
        Err(Lost(error)) => {
            return EndedWork {
                run: None,
                outcome: Err(error),
                shown: None,
            };
        }
        Err(Failed(error)) => {
            let shown = issue.finish(result_of_error(&error), None).await;
            return EndedWork {
                run: None,
                outcome: Err(error),
                shown: Some(shown),
            };
        }
    };
    let dir = run.dir().clone();
    started.send_replace(Some(dir.clone()));
    let (outcome, has_claim) = drive(surroundings, &issue, &run, &mut orders).await;
    let shown = if has_claim {
        let result = match &outcome {
            Ok(outcome) => result_of_run(outcome, *orders.borrow()),
            Err(error) => result_of_error(error),
        };
        // What it writes may wait for rate limits longer than the claim lasts.
        Some(tokio::select! {
            biased;
            shown = issue.finish(result, Some(&dir)) => shown,
            lost = issue.keep() => Err(lost),
        })
    } else {
        None
    };
    EndedWork {
        run: Some(dir),
        outcome,
        shown,
    }
}

/// Why a run did not start.
enum NotStarted {
    /// Another process has the issue.
    Lost(AssemblyError),
    Failed(AssemblyError),
}
use NotStarted::{Failed, Lost};

async fn start(
    issue: &Arc<ClaimedIssue>,
    builder: RalphBuilder,
    orders: &mut watch::Receiver<WorkOrder>,
) -> Result<ActiveRun, NotStarted> {
    let start = Box::pin(async { issue.builder(builder).build().await?.start().await });
    tokio::select! {
        run = start => run.map_err(Failed),
        lost = issue.keep() => Err(Lost(lost)),
        () = asked_for(orders, WorkOrder::Pause) => {
            Err(Failed(AssemblyError::interrupted("interrupted before the run began").with_hint("run the same command again")))
        }
    }
}

/// Works on the run. Also returns whether this process still has the claim.
async fn drive(
    surroundings: &Surroundings,
    issue: &ClaimedIssue,
    run: &ActiveRun,
    orders: &mut watch::Receiver<WorkOrder>,
) -> (Result<RunOutcome, AssemblyError>, bool) {
    let (ended, has_claim) = tokio::select! {
        outcome = run.drive() => return (outcome, true),
        lost = issue.keep() => (lost, false),
        ended = obey(surroundings, run.dir(), orders) => (ended, true),
    };
    let left = if has_claim {
        run.stop_sandbox().await
    } else {
        // Another host works on the issue. Nothing would ever use or remove the sandbox of this one.
        run.remove_sandbox().await
    };
    match left {
        Ok(()) => (Err(ended), has_claim),
        Err(error) => (Err(error), has_claim),
    }
}

/// Passes orders on to the run. Returns when it is to end at once.
async fn obey(
    surroundings: &Surroundings,
    dir: &RunDir,
    orders: &mut watch::Receiver<WorkOrder>,
) -> AssemblyError {
    let steps = [
        (WorkOrder::Pause, Some(Intervention::Pause)),
        (WorkOrder::Stop, Some(Intervention::Stop)),
        (WorkOrder::End, None),
    ];
    for (order, intervention) in steps {
        asked_for(orders, order).await;
        // An order that was overtaken by a stronger one is left out.
        let Some(intervention) = intervention.filter(|_| *orders.borrow() == order) else {
            continue;
        };
        let request = InterventionRequest::new(intervention, surroundings.user(), surroundings.now());
        if let Err(error) = dir.inbox().leave(&request) {
            return error.into();
        }
    }
    let id = &dir.facts().id;
    AssemblyError::paused("ended at once")
        .with_hint(format!("`ralph resume {id}` continues from the last iteration"))
}

/// Waits for this order or a stronger one.
pub(super) async fn asked_for(orders: &mut watch::Receiver<WorkOrder>, order: WorkOrder) {
    if orders.wait_for(|asked| *asked >= order).await.is_err() {
        // No order can come any more.
        std::future::pending::<()>().await;
    }
}

fn result_of_run(outcome: &RunOutcome, order: WorkOrder) -> IssueResult {
    match outcome.kind {
        RunOutcomeKind::Done => IssueResult::Done {
            pull_request: outcome.pull_request.clone(),
        },
        RunOutcomeKind::Failed | RunOutcomeKind::Paused => IssueResult::NeedsAttention {
            reason: format!("{}: {}", outcome.kind, outcome.reason),
        },
        // A ready issue would be claimed again at once.
        RunOutcomeKind::Stopped if order == WorkOrder::GoOn => IssueResult::NeedsAttention {
            reason: "a person stopped the run".to_owned(),
        },
        RunOutcomeKind::Stopped => IssueResult::Stopped,
    }
}

fn result_of_error(error: &AssemblyError) -> IssueResult {
    match error.kind() {
        AssemblyErrorKind::Interrupted | AssemblyErrorKind::Paused => IssueResult::Stopped,
        AssemblyErrorKind::Usage
        | AssemblyErrorKind::Runtime
        | AssemblyErrorKind::NotFound
        | AssemblyErrorKind::Conflict => IssueResult::NeedsAttention {
            reason: match error.hint() {
                Some(hint) => format!("{error}\nhint: {hint}"),
                None => error.to_string(),
            },
        },
    }
}
