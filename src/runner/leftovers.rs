//! Work that an agent leaves uncommitted. Evidence does not see it, so it is reported to the agent and the user, or the runner
//! commits it.

use crate::id::ObjectId;
use crate::scm::{self, DirtyPath, HandBack, HandBackRequest, PathChange, PrivateClone, Snapshot};
use crate::state::{IterationRecord, UncommittedWork};
use crate::text::counted;

use super::RunError;
use super::workplace::Workplace;

/// How many files are named.
const NAMES_SHOWN: usize = 10;

/// What a snapshot holds besides its tip. Nested repositories are not part of it.
pub(super) fn uncommitted_work(snapshot: &Snapshot) -> Option<UncommittedWork> {
    let is_file = |dirty: &&DirtyPath| dirty.change != PathChange::Repository;
    let files: Vec<&DirtyPath> = snapshot.dirty.iter().filter(is_file).collect();
    let names = files.iter().take(NAMES_SHOWN).map(|file| file.path.to_string());
    (!files.is_empty()).then(|| UncommittedWork {
        files: names.collect(),
        count: files.len() as u64,
        commit: None,
    })
}

/// Commits the uncommitted work of a snapshot that was handed back, and hands that commit back too.
pub(super) async fn commit_leftovers(
    workplace: &Workplace<'_>,
    clone: &PrivateClone<'_>,
    snapshot: &Snapshot,
    handed: &HandBack,
    iteration: u32,
) -> Result<(Snapshot, HandBack), RunError> {
    let message = format!(
        "Commit what the agent left in iteration {iteration}\n\n\
         The agent ended the iteration without committing these changes.\n\n\
         Ralph-Leftovers: iteration {iteration}\n"
    );
    let committed = clone.commit_snapshot(snapshot, &message).await?;
    let mut known = workplace.known.clone();
    known.extend([handed.commit.clone(), handed.tip.clone()]);
    let inputs = workplace.inputs;
    let request = HandBackRequest {
        base: &inputs.dir.facts().base,
        snapshot: &committed,
        known: &known,
        limit: inputs.settings.max_hand_back_bytes,
        redactor: &inputs.parts.redactor,
    };
    let again = scm::hand_back(&workplace.repo, clone, &request, inputs.dir.path()).await?;
    let repositories = handed.repositories.clone();
    Ok((
        committed,
        HandBack {
            repositories,
            ..again
        },
    ))
}

/// The notice for the agent and the user about work that the runner committed.
pub(super) fn committed_notice(work: &UncommittedWork) -> Option<String> {
    let (commit, files) = (work.commit.as_ref()?, counted(work.count, "file"));
    Some(format!(
        "the agent left {files} uncommitted, and ralph committed what it left as {commit}: {}",
        named(work)
    ))
}

/// The notice for the agent and the user about work that stays uncommitted.
pub(super) fn unseen_notice(
    work: &UncommittedWork,
    tip: &ObjectId,
    base: &ObjectId,
    has_evidence: bool,
) -> String {
    let (files, names) = (counted(work.count, "uncommitted file"), named(work));
    let commit = if tip == base {
        format!("commit {tip} (the base commit)")
    } else {
        format!("commit {tip}")
    };
    let seen = if has_evidence {
        format!("evidence ran on {commit} without")
    } else {
        format!("evidence is gathered from commits only, and would run on {commit} without")
    };
    format!("{seen} {files}: {names}; commit what belongs to the task")
}

/// The same for the end of a run, about its last iteration.
pub(super) fn unseen_at_the_end(record: &IterationRecord, base: &ObjectId) -> Option<String> {
    let work = record.uncommitted.as_ref().filter(|work| work.commit.is_none())?;
    let has_evidence = !record.evidence.is_empty();
    Some(unseen_notice(work, &record.tip, base, has_evidence))
}

/// The first files, and how many more there are.
pub(super) fn named(work: &UncommittedWork) -> String {
    let mut names: Vec<String> = work.files.iter().map(|name| format!("`{name}`")).collect();
    let more = work.count.saturating_sub(names.len() as u64);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}
