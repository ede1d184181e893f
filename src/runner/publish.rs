//! The pull request: opened once the evidence is complete, or earlier as a draft. The run is done only when the forge has that
//! commit.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::timeout;

use crate::event::EventKind;
use crate::id::ObjectId;
use crate::scm::{
    CommitState, CommitStatus, ForgeError, OpenedPullRequest, PullRequest, PullRequestBase, changed_files,
};
use crate::state::{
    CheckResult, IterationRecord, IterationVerdict, JournalEntry, JournalLine, RunOutcomeKind, is_in_review,
    standing_records,
};
use crate::task::{PullRequestText, PullRequestWhen};
use crate::text::{counted, error_chain, one_line};

use super::ci::{CiVerdict, await_ci};
use super::error::Halt;
use super::pull_request::pull_request_text;
use super::run::Run;
use super::settings::OverlapRule;
use super::signature::{share_evidence, sign_evidence};

/// How long the end of a run waits for the forge to show it beside the commit.
const STATUS_TIMEOUT: Duration = Duration::from_secs(30);

/// Signs the evidence of the newest record, which is complete, opens the pull request, and ends the run as done.
pub(super) async fn publish(run: &mut Run<'_>) -> Result<(), Halt> {
    let Some(record) = run.progress.last_record().cloned() else {
        return Ok(());
    };
    run.progress.renew_lease().await?;
    sign_evidence(run, &record).await?;
    share_evidence(run, &record).await;
    let ci = run.inputs.settings.done.ci;
    let of_work = request(run, &record, &[]).await?;
    let of_done = PullRequest {
        draft: run.task.frontmatter.pr.draft,
        is_done: true,
        ..of_work.clone()
    };
    let first = if ci.is_some() { &of_work } else { &of_done };
    look_for_overlaps(run, &record, first).await?;
    let is_pull_request = open_at_forge(run, &record, first).await?;
    let published = if is_pull_request {
        "the pull request contains that commit"
    } else {
        "the branch is pushed, but this account may not open the pull request"
    };
    let mut reason = format!("every checkbox is verified, the tests pass and {published}");
    if let Some(rules) = ci {
        match await_ci(run, &record.tip, rules).await? {
            CiVerdict::Passed(found) => reason = format!("{reason}; {found}"),
            CiVerdict::Again => return Ok(()),
            CiVerdict::Person { reason, checks } => {
                let request = request(run, &record, &checks).await?;
                update(run, &record, &request).await?;
                return Err(Halt::paused(reason));
            }
        }
        open_at_forge(run, &record, &of_done).await?;
    }
    match run.answer_reviews(&record.tip).await? {
        0 => {}
        count => reason = format!("{reason}; {} to reviewers", counted(count, "answer")),
    }
    if !record.evidence_shares.is_empty() {
        let shared = record.evidence_shares.join("; ");
        reason = format!("{reason}. Evidence shared with the agent: {shared}");
    }
    Err(Halt::end(RunOutcomeKind::Done, reason))
}

/// Warns of other open pull requests that change the same files, or pauses. A forge that cannot be asked is no reason to stop.
async fn look_for_overlaps(
    run: &Run<'_>,
    record: &IterationRecord,
    request: &PullRequest,
) -> Result<(), Halt> {
    let rule = run.inputs.settings.on_overlap;
    if rule == OverlapRule::Ignore {
        return Ok(());
    }
    let base = &run.progress.facts().base;
    let changed = changed_files(&run.workplace.repo, base, &record.tip).await?;
    let files: Vec<String> = changed.iter().map(|change| change.path.to_string()).collect();
    let forge = &run.inputs.parts.forge;
    let found = match forge
        .overlaps(&request.branch, &request.base_branch, &files)
        .await
    {
        Ok(found) => found,
        Err(error) => {
            let error = error_chain(&error);
            let warning = format!("cannot look for pull requests that change the same files: {error}");
            run.inputs.reporter.warn(warning);
            return Ok(());
        }
    };
    let described: Vec<String> = found
        .iter()
        .map(|other| {
            format!(
                "{} changes the same files: {}",
                other.location,
                other.files.join(", ")
            )
        })
        .collect();
    if rule == OverlapRule::Pause && !described.is_empty() {
        return Err(Halt::paused(format!(
            "{}; `ralph resume --set forge.on_overlap=warn` opens the pull request all the same",
            described.join("; ")
        )));
    }
    for warning in described {
        run.inputs.reporter.warn(warning);
    }
    Ok(())
}

/// Opens the pull request, which must contain the commit then. Returns whether there is one, and not only a branch.
async fn open_at_forge(
    run: &mut Run<'_>,
    record: &IterationRecord,
    request: &PullRequest,
) -> Result<bool, Halt> {
    let opened = open(run, record, request).await??;
    let forge = &run.inputs.parts.forge;
    if !forge.is_at(&request.branch, &request.commit).await? {
        return Err(Halt::paused(format!(
            "the pull request {} does not contain commit {}",
            opened.location, record.tip
        )));
    }
    Ok(opened.is_pull_request)
}

/// Opens or updates the pull request as a draft before the run is done, if the task asks for it: at most once in `interval`,
/// and only for a new commit. A forge that fails does not stop the work.
pub(super) async fn publish_progress(run: &mut Run<'_>, interval: Duration) -> Result<(), Halt> {
    let progress = &run.progress;
    // A record that a retry took back is not published.
    let records = standing_records(progress.journal.lines());
    let Some(record) = records.last().map(|record| (*record).clone()) else {
        return Ok(());
    };
    let is_due = match run.task.frontmatter.pr.when {
        PullRequestWhen::FirstPush => true,
        PullRequestWhen::Progress => !progress.ticked.is_empty(),
        PullRequestWhen::Done => false,
    };
    if !is_due || record.tip == progress.facts().base {
        return Ok(());
    }
    if let Some(published) = newest_published(progress.journal.lines()) {
        let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
        let age = run.inputs.parts.clock.now().duration_since(published.at);
        if *published.commit == record.tip || age < interval {
            return Ok(());
        }
    }
    let request = request(run, &record, &[]).await?;
    update(run, &record, &request).await
}

/// Opens or updates the pull request. A forge that fails is a warning.
async fn update(run: &mut Run<'_>, record: &IterationRecord, request: &PullRequest) -> Result<(), Halt> {
    if let Err(error) = open(run, record, request).await? {
        let failed = format!("cannot update the pull request: {}", error_chain(&error));
        run.inputs.reporter.warn(failed);
    }
    Ok(())
}

/// A commit that is in the pull request.
struct PublishedCommit<'j> {
    commit: &'j ObjectId,
    location: &'j str,
    at: Timestamp,
}

/// The newest commit of the journal that is in the pull request.
fn newest_published(lines: &[JournalLine]) -> Option<PublishedCommit<'_>> {
    lines.iter().rev().find_map(|line| match &line.entry {
        JournalEntry::PullRequest { location, commit } => Some(PublishedCommit {
            commit,
            location,
            at: line.at,
        }),
        _ => None,
    })
}

/// Ends the commit status of a run that ends without being done, so that it does not stay `pending`. What is decided about the
/// commit stays. A forge that fails, or takes too long, is a warning: the end is recorded already.
pub(super) async fn end_status(run: &Run<'_>, state: CommitState, reason: &str) {
    let progress = &run.progress;
    let published = newest_published(progress.journal.lines());
    let Some(published) = published.filter(|_| run.inputs.settings.commit_statuses) else {
        return;
    };
    let (ticked, all) = (progress.ticked.len(), run.task.checkboxes.len());
    let is_decided =
        |record: &IterationRecord| commit_status(record, ticked, all).state != CommitState::Pending;
    let mut records = progress.journal.records();
    if records.any(|record| record.tip == *published.commit && is_decided(record)) {
        return;
    }
    let status = CommitStatus {
        state,
        description: one_line(reason),
    };
    let forge = &run.inputs.parts.forge;
    let shown = forge.set_status(published.commit, &status, published.location);
    let problem = match timeout(STATUS_TIMEOUT, shown).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error_chain(&error),
        Err(_) => format!("no answer within {} s", STATUS_TIMEOUT.as_secs()),
    };
    run.inputs.reporter.warn(format!(
        "the commit status of {} stays pending: {problem}",
        published.commit
    ));
}

/// The pull request of a run that works: a draft. `failed_checks` are the checks of CI that a person has to look at.
async fn request(
    run: &Run<'_>,
    record: &IterationRecord,
    failed_checks: &[String],
) -> Result<PullRequest, Halt> {
    let (parts, progress) = (run.inputs.parts, &run.progress);
    let facts = progress.facts();
    let base = pull_request_base(run).await;
    let text = pull_request_text(run, record, &base, failed_checks).await?;
    let PullRequestText { title, body } = text;
    Ok(PullRequest {
        run: facts.id.clone(),
        earlier_runs: Vec::new(),
        branch: facts.branch.clone(),
        base_branch: base.branch,
        commit: record.tip.clone(),
        ours: progress
            .journal
            .records()
            .map(|record| record.tip.clone())
            .collect(),
        title: parts.redactor.redact(&title),
        body: parts.redactor.redact(&body),
        draft: true,
        is_done: is_in_review(progress.journal.lines()),
        labels: run.task.frontmatter.pr.labels.clone(),
        status: run
            .inputs
            .settings
            .commit_statuses
            .then(|| commit_status(record, progress.ticked.len(), run.task.checkboxes.len())),
    })
}

/// The base of the pull request: the base branch of the run, or where its commits went since. A run that started from a
/// detached `HEAD` names its base commit.
async fn pull_request_base(run: &Run<'_>) -> PullRequestBase {
    let facts = run.progress.facts();
    let unchanged = |branch: String| PullRequestBase { branch, below: None };
    let Some(branch) = &facts.base_branch else {
        return unchanged(facts.base.to_string());
    };
    match run.inputs.parts.forge.base(branch).await {
        Ok(base) => base,
        Err(error) => {
            run.inputs.reporter.warn(format!(
                "cannot look for the pull request of the base branch `{branch}`: {}",
                error_chain(&error)
            ));
            unchanged(branch.clone())
        }
    }
}

/// What the forge shows beside the commit of a record, for `all` checkboxes of which `ticked` are verified now: an edit of the
/// task may have added some since.
fn commit_status(record: &IterationRecord, ticked: usize, all: usize) -> CommitStatus {
    let verified = format!("{ticked} of {} verified", counted(all, "checkbox"));
    let is_complete = record.verdict == IterationVerdict::Complete && ticked == all;
    let (state, description) = match &record.tests {
        _ if is_complete => (CommitState::Success, verified),
        Some(tests) if !tests.passed() && ran_on_commit(record, tests) => {
            (CommitState::Failure, format!("the tests fail, {verified}"))
        }
        _ => (CommitState::Pending, format!("in progress, {verified}")),
    };
    CommitStatus { state, description }
}

/// Whether tests saw the files of the record's commit, and no others: as evidence, or in a clone without uncommitted work.
fn ran_on_commit(record: &IterationRecord, tests: &CheckResult) -> bool {
    let is_clean = record
        .uncommitted
        .as_ref()
        .is_none_or(|work| work.commit.is_some());
    match &tests.commit {
        Some(commit) => *commit == record.tip,
        None => is_clean,
    }
}

/// Opens the pull request and records it. A commit of a person on the branch, or a pull request that a person closed, pauses
/// the run.
async fn open(
    run: &mut Run<'_>,
    record: &IterationRecord,
    request: &PullRequest,
) -> Result<Result<OpenedPullRequest, ForgeError>, Halt> {
    run.progress.renew_lease().await?;
    let opened = match run.inputs.parts.forge.open(request).await {
        Ok(opened) => opened,
        Err(error) if error.is_by_person() => return Err(Halt::paused(error_chain(&error))),
        Err(error) => return Ok(Err(error)),
    };
    let location = &opened.location;
    for warning in &opened.warnings {
        run.inputs.reporter.warn(warning.clone());
    }
    let progress = &mut run.progress;
    let file = format!("iterations/{}/pr_state.json", record.iteration);
    let state = serde_json::json!({
        "branch": request.branch, "tip": record.tip, "opened": opened.is_pull_request, "location": location, "draft": request.draft,
        "title": request.title, "body": request.body,
    });
    progress.files.write(&file, &format!("{state:#}\n"))?;
    progress.log_activity(&format!("pull request: {location} holds {}", record.tip))?;
    progress.append(JournalEntry::PullRequest {
        location: location.clone(),
        commit: record.tip.clone(),
    })?;
    run.inputs.reporter.emit(EventKind::PullRequest {
        location: location.clone(),
        commit: record.tip.to_string(),
    });
    Ok(Ok(opened))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::gutter::tests::uneventful;
    use crate::state::UncommittedWork;

    fn tests(code: i32, commit: Option<ObjectId>) -> CheckResult {
        CheckResult {
            command: "make test".to_owned(),
            code,
            started: None,
            seconds: 1.0,
            commit,
        }
    }

    #[test]
    fn a_status_is_successful_only_with_every_checkbox() {
        let record = IterationRecord {
            verdict: IterationVerdict::Complete,
            ..uneventful()
        };
        assert_eq!(commit_status(&record, 2, 2).state, CommitState::Success);
        // A person added a checkbox.
        let status = commit_status(&record, 2, 3);
        assert_eq!(status.state, CommitState::Pending);
        assert_eq!(status.description, "in progress, 2 of 3 checkboxes verified");
    }

    #[test]
    fn only_tests_of_the_commit_make_a_failure() {
        let clean = uneventful();
        let dirty = IterationRecord {
            uncommitted: Some(UncommittedWork {
                files: vec!["broken".to_owned()],
                count: 1,
                commit: None,
            }),
            ..uneventful()
        };
        let other = ObjectId::parse(&"e".repeat(40)).unwrap();
        let tip = Some(clean.tip.clone());
        for (record, tests, expected) in [
            (&clean, Some(tests(1, None)), CommitState::Failure),
            (&clean, Some(tests(1, tip.clone())), CommitState::Failure),
            (&dirty, Some(tests(1, tip)), CommitState::Failure),
            (&dirty, Some(tests(1, None)), CommitState::Pending),
            (&clean, Some(tests(1, Some(other))), CommitState::Pending),
            (&clean, Some(tests(0, None)), CommitState::Pending),
            (&clean, None, CommitState::Pending),
        ] {
            let record = IterationRecord {
                tests: tests.clone(),
                ..record.clone()
            };
            assert_eq!(commit_status(&record, 1, 2).state, expected, "{tests:?}");
        }
    }
}
