//! The end of the agent's work: its commits and its working tree are handed back to the user's repository.

use crate::sandbox::SandboxErrorKind;
use crate::scm::{self, Diff, HandBackRefusal, ScmError, Snapshot};
use crate::text::error_chain;

use super::RunError;
use super::actions::ActionsLog;
use super::error::Halt;
use super::gutter;
use super::progress::RunProgress;
use super::workplace::Workplace;

/// How often the index of the clone is written again, in iterations.
const RENEW_INDEX_EVERY: u32 = 10;

/// What an iteration changed.
pub(super) struct Collected {
    pub(super) snapshot: Snapshot,
    pub(super) diff: Diff,
    /// Whether there are new commits, with a tree that no earlier iteration had.
    pub(super) new_work_committed: bool,
}

/// Hands the contents of the clone back to the user's repository.
///
/// Work that cannot be accepted (a rewritten history, a hostile name, a broken clone) fails the iteration: the clone is
/// reset to the last checkpoint, and the next prompt says why. Work that contains a known secret also pauses the run.
pub(super) async fn collect(
    workplace: &mut Workplace<'_>,
    progress: &mut RunProgress<'_>,
    actions: &mut ActionsLog,
) -> Result<Collected, Halt> {
    let reason = match hand_back(workplace, progress).await {
        Ok(collected) => return Ok(collected),
        Err(RunError::Scm(ScmError::Refused(refusal @ HandBackRefusal::Secret))) => {
            let files = changed_files(workplace, progress).await?;
            workplace.reset_clone(progress).await?;
            return Err(Halt::paused(format!(
                "{refusal} ({files}); the work of this iteration is dropped"
            )));
        }
        Err(RunError::Scm(error)) if is_fault_of_clone(&error) => error_chain(&error),
        Err(error) => return Err(error.into()),
    };
    let reporter = workplace.inputs.reporter;
    reporter.warn(format!("the work of this iteration is dropped: {reason}"));
    let failure = gutter::text_failure("hand-back", 1, &reason);
    actions.fail(
        failure,
        format!("the work of this iteration was dropped: {reason}"),
    );
    workplace.reset_clone(progress).await?;
    Ok(Collected {
        snapshot: workplace.private_clone(&progress.tip).snapshot().await?,
        diff: Diff::default(),
        new_work_committed: false,
    })
}

async fn hand_back(workplace: &mut Workplace<'_>, progress: &RunProgress<'_>) -> Result<Collected, RunError> {
    let (facts, dir) = (progress.facts(), workplace.inputs.dir);
    let clone = workplace.private_clone(&progress.tip);
    clone.remove_locks().await?;
    let snapshot = clone.snapshot().await?;
    let diff = clone.diff(&progress.tree, &snapshot.tree).await?;
    let request = scm::HandBackRequest {
        base: &facts.base,
        snapshot: &snapshot,
        known: &workplace.known,
        limit: scm::DEFAULT_BUNDLE_LIMIT,
        redactor: &workplace.inputs.parts.redactor,
    };
    let handed = scm::hand_back(&workplace.repo, &clone, &request, dir.path()).await?;
    if snapshot.branch.as_ref() != Some(&facts.branch) {
        workplace
            .inputs
            .reporter
            .warn("the agent left the branch of the run; its work is moved back to that branch");
        clone.reset_to(&snapshot.tip).await?;
        clone.restore(&snapshot.tree).await?;
    }
    if (progress.iterations() + 1).is_multiple_of(RENEW_INDEX_EVERY) {
        clone.refresh_index().await?;
    }
    let mut records = progress.journal.records();
    let is_new_tree = !records.any(|record| record.tree == snapshot.tree);
    let new_work_committed = !handed.new_commits.is_empty() && is_new_tree;
    workplace.known = vec![handed.commit, snapshot.tip.clone()];
    Ok(Collected {
        snapshot,
        diff,
        new_work_committed,
    })
}

/// The files that differ from the last checkpoint, for a person.
async fn changed_files(workplace: &Workplace<'_>, progress: &RunProgress<'_>) -> Result<String, RunError> {
    let clone = workplace.private_clone(&progress.tip);
    let diff = clone.diff(&progress.tree, &clone.snapshot().await?.tree).await?;
    let files: Vec<String> = diff.files.iter().map(|file| file.path.to_string()).collect();
    Ok(if files.is_empty() {
        "in its history".to_owned()
    } else {
        files.join(", ")
    })
}

/// Whether the contents of the clone are at fault, not the host or the sandbox.
fn is_fault_of_clone(error: &ScmError) -> bool {
    match error {
        ScmError::Refused(_)
        | ScmError::NoCommit
        | ScmError::Git { .. }
        | ScmError::OutputTooLong { .. }
        | ScmError::Unexpected { .. } => true,
        ScmError::Sandbox(error) => {
            matches!(error.kind(), SandboxErrorKind::TooLong | SandboxErrorKind::File)
        }
        _ => false,
    }
}
