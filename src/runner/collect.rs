//! The end of the agent's work: its commits and its working tree are handed back to the user's repository.

use std::collections::BTreeSet;

use crate::sandbox::SandboxErrorKind;
use crate::scm::{
    self, Diff, HandBack, HandBackRefusal, HandBackRequest, LargeFile, PathChange, PrivateClone, RepoPath,
    Repository, ScmError, Snapshot,
};
use crate::state::UncommittedWork;
use crate::text::{counted, error_chain};

use super::RunError;
use super::actions::ActionsLog;
use super::error::Halt;
use super::gutter;
use super::leftovers::{commit_leftovers, committed_notice, uncommitted_work};
use super::progress::RunProgress;
use super::workplace::Workplace;

/// How often the index of the clone is written again, in iterations.
const RENEW_INDEX_EVERY: u32 = 10;

/// How many files a notice names.
const NAMES_SHOWN: usize = 10;

/// What an iteration changed.
pub(super) struct Collected {
    pub(super) snapshot: Snapshot,
    pub(super) diff: Diff,
    /// Whether new commits change files, with a tree that no earlier iteration had.
    pub(super) new_work_committed: bool,
    /// Whether there are new commits that change nothing but run files, or nothing at all.
    pub(super) has_empty_commits: bool,
    /// What the agent left uncommitted, also if the runner committed it.
    pub(super) uncommitted: Option<UncommittedWork>,
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
    let reason = match hand_back(workplace, progress, actions).await {
        Ok(collected) => return Ok(collected),
        Err(RunError::Scm(ScmError::Refused(refusal @ HandBackRefusal::Secret))) => {
            let files = changed_files(workplace, progress).await?;
            workplace.reset_clone(progress).await?;
            return Err(Halt::paused(format!(
                "{refusal} ({files}); the work of this iteration is dropped"
            )));
        }
        Err(RunError::Scm(error)) if is_fault_of_clone(&error, &workplace.repo) => error_chain(&error),
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
        has_empty_commits: false,
        uncommitted: None,
    })
}

async fn hand_back(
    workplace: &mut Workplace<'_>,
    progress: &RunProgress<'_>,
    actions: &mut ActionsLog,
) -> Result<Collected, RunError> {
    let facts = progress.facts();
    let clone = workplace.private_clone(&progress.tip);
    clone.remove_locks().await?;
    let HandedBack {
        mut snapshot,
        mut handed,
        run_file,
        left_out,
    } = hand_back_most(workplace, &clone).await?;
    let mut uncommitted = uncommitted_work(&snapshot);
    if let Some(work) = uncommitted
        .as_mut()
        .filter(|_| workplace.inputs.settings.commit_leftovers)
    {
        let iteration = progress.iterations() + 1;
        (snapshot, handed) = commit_leftovers(workplace, &clone, &snapshot, &handed, iteration).await?;
        work.commit = Some(snapshot.tip.clone());
    }
    let diff = clone.diff(&progress.tree, &snapshot.tree).await?;
    let has_empty_commits = !handed.changes_files && (run_file.is_some() || !handed.new_commits.is_empty());
    let mut notices = nested_repositories(&snapshot, &handed);
    notices.extend(run_file.as_ref().map(run_file_notice));
    notices.extend(uncommitted.as_ref().and_then(committed_notice));
    if !left_out.is_empty() {
        let limit = workplace.inputs.settings.max_hand_back_bytes;
        notices.push(large_files_notice(&left_out, limit));
    }
    let reporter = workplace.inputs.reporter;
    if snapshot.branch.as_ref() != Some(&facts.branch) {
        reporter.warn("the agent left the branch of the run; its work is moved back to that branch");
        clone.reset_to(&snapshot.tip).await?;
        clone.restore(&snapshot.tree).await?;
    }
    if (progress.iterations() + 1).is_multiple_of(RENEW_INDEX_EVERY) {
        clone.refresh_index().await?;
    }
    for notice in &notices {
        reporter.warn(notice.clone());
    }
    actions.errors.extend(notices);
    let mut records = progress.journal.records();
    let is_new_tree = snapshot.tree != progress.tree && !records.any(|record| record.tree == snapshot.tree);
    let new_work_committed = handed.changes_files && is_new_tree;
    workplace.known = vec![handed.commit, snapshot.tip.clone()];
    Ok(Collected {
        snapshot,
        diff,
        new_work_committed,
        has_empty_commits,
        uncommitted,
    })
}

/// What was handed back, and what was left out of it.
struct HandedBack {
    snapshot: Snapshot,
    handed: HandBack,
    /// A run file that was taken out of the commits.
    run_file: Option<RepoPath>,
    /// Uncommitted files that are too large.
    left_out: Vec<LargeFile>,
}

/// Hands back the commits and as much of the uncommitted work as is possible.
async fn hand_back_most(workplace: &Workplace<'_>, clone: &PrivateClone<'_>) -> Result<HandedBack, RunError> {
    let limit = workplace.inputs.settings.max_hand_back_bytes;
    // Half of the limit leaves room for the commits; otherwise they are handed back alone.
    let mut smaller = [limit / 2, 0].into_iter();
    let (mut snapshot, mut left_out) = (clone.snapshot().await?, Vec::new());
    let mut run_file = None;
    loop {
        let request = HandBackRequest {
            base: &workplace.inputs.dir.facts().base,
            snapshot: &snapshot,
            known: &workplace.known,
            limit,
            redactor: &workplace.inputs.parts.redactor,
        };
        let scratch = workplace.inputs.dir.path();
        match scm::hand_back(&workplace.repo, clone, &request, scratch).await {
            Ok(handed) => {
                return Ok(HandedBack {
                    snapshot,
                    handed,
                    run_file,
                    left_out,
                });
            }
            Err(ScmError::Refused(HandBackRefusal::RunFile { path, .. })) if run_file.is_none() => {
                clone.drop_run_files().await?;
                run_file = Some(path);
                snapshot = clone.snapshot().await?;
            }
            Err(error @ ScmError::Refused(HandBackRefusal::TooLong { .. })) => {
                let bytes = smaller.next().ok_or(error)?;
                (snapshot, left_out) = clone.snapshot_within(bytes).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn run_file_notice(path: &RepoPath) -> String {
    format!(
        "`{path}` was taken out of the commits, because it belongs to the run: do not commit `.ralph/` or `ralph_task.md`"
    )
}

fn large_files_notice(files: &[LargeFile], limit: u64) -> String {
    let name = |file: &LargeFile| format!("`{}` ({})", file.path, counted(file.bytes, "byte"));
    let mut names: Vec<String> = files.iter().take(NAMES_SHOWN).map(name).collect();
    if files.len() > NAMES_SHOWN {
        names.push(format!("{} more", files.len() - NAMES_SHOWN));
    }
    format!(
        "left out, because an iteration hands back at most {}: {}; delete what the task does not need, or add it to \
         `.gitignore`",
        counted(limit, "byte"),
        names.join(", ")
    )
}

/// A notice for each git repository inside the clone, whose files are not handed back.
fn nested_repositories(snapshot: &Snapshot, handed: &HandBack) -> Vec<String> {
    let untracked = snapshot.dirty.iter();
    let untracked = untracked.filter(|dirty| dirty.change == PathChange::Repository);
    let paths = untracked.map(|dirty| &dirty.path).chain(&handed.repositories);
    let paths: BTreeSet<&RepoPath> = paths.collect();
    let notice = |path: &RepoPath| {
        format!(
            "`{path}` is a git repository of its own, so its files are not handed back: remove `{path}/.git` to keep them, or \
             add `{path}` to `.gitignore`"
        )
    };
    paths.into_iter().map(notice).collect()
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

/// Whether the contents of the clone are at fault, not the host, the user's repository or the sandbox.
fn is_fault_of_clone(error: &ScmError, repo: &Repository) -> bool {
    match error {
        ScmError::Git { .. } => !repo.is_source_of(error),
        ScmError::Refused(_)
        | ScmError::NoCommit
        | ScmError::OutputTooLong { .. }
        | ScmError::Unexpected { .. } => true,
        ScmError::Sandbox(error) => {
            matches!(error.kind(), SandboxErrorKind::TooLong | SandboxErrorKind::File)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::TestRun;

    #[tokio::test]
    async fn a_repository_that_takes_no_work_ends_the_run_and_the_clone_keeps_it() {
        let run = TestRun::new().await;
        let (mut progress, mut workplace) = (run.progress().await, run.workplace().await);
        workplace.reset_clone(&mut progress).await.unwrap();
        let work = workplace.clone_dir().join("work.txt");
        let files = workplace.sandbox().files();
        files.write(&work, b"work\n", 0o644).await.unwrap();
        // Every git command on the repository fails, and those in the clone do not.
        std::fs::write(run.repo.common_dir().join("config"), "[").unwrap();
        let mut actions = ActionsLog::default();
        match collect(&mut workplace, &mut progress, &mut actions).await {
            Err(Halt::Broken(RunError::Scm(error))) => assert!(run.repo.is_source_of(&error), "{error}"),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("the work was dropped: {:?}", actions.errors),
        }
        let kept = workplace.sandbox().files().read(&work, 100).await.unwrap();
        assert_eq!(kept, b"work\n");
    }
}
