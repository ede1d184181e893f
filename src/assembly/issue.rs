//! An issue that this process has claimed: the claim is kept while a run works on it, and the result is shown on the issue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::github::{Claim, GitHubError, GitHubForge, Issue, IssueStatus};
use crate::id::{ObjectId, RunId};
use crate::runner;
use crate::scm::{
    CiReport, CommitStatus, Forge, ForgeError, OpenedPullRequest, PlannedPullRequest, PullRequest,
    PullRequestBase, PullRequestOverlap, Repository, ReviewAnswer, is_version,
};
use crate::state::RunDir;
use crate::task::{Task, mark_steps_done};

use super::issue_queue::{IssueQueue, IssueWork, PreparedIssue};
use super::{AssemblyError, AssemblyErrorKind, ErrorTopic, RalphBuilder};

/// A renewal that failed is tried again after this part of the lease.
const RETRY: u32 = 30;

/// How the work on an issue ended.
#[derive(Clone, Debug)]
pub(crate) enum IssueResult {
    /// All of it is done.
    Done {
        /// Where the pull request is.
        pull_request: Option<String>,
    },
    /// A person is needed.
    NeedsAttention {
        /// Why.
        reason: String,
    },
    /// The user stopped it. It can be claimed again.
    Stopped,
    /// A person took the issue back while a run worked on it.
    Withdrawn {
        /// What the person did.
        reason: String,
        /// The status that the issue gets.
        status: Option<IssueStatus>,
    },
}

impl IssueResult {
    /// In a few words, for people.
    pub(crate) fn summary(&self) -> String {
        match self {
            Self::Done { pull_request } => {
                let location = pull_request.as_deref().unwrap_or("no pull request");
                format!("done, {location}")
            }
            Self::NeedsAttention { reason } => format!("needs attention: {reason}"),
            Self::Stopped => "stopped, ready again".to_owned(),
            Self::Withdrawn { reason, .. } => format!("ended because {reason}"),
        }
    }
}

/// An issue that this process has claimed.
pub(crate) struct ClaimedIssue {
    queue: Arc<IssueQueue>,
    claim: Mutex<Claim>,
    work: IssueWork,
    number: u64,
    /// Its title and text, as the run has them.
    known: StdMutex<(String, String)>,
    /// Set when a person took it back.
    withdrawn: StdMutex<Option<IssueResult>>,
    /// Whether the result is being shown. Locked by what changes the issue: what shows the work must not overwrite the result.
    is_finished: Mutex<bool>,
    /// Whether its run was done before, and works on a review now.
    pub(crate) is_review: bool,
}

impl ClaimedIssue {
    pub(super) fn new(queue: Arc<IssueQueue>, claim: Claim, prepared: PreparedIssue) -> Self {
        Self {
            queue,
            claim: Mutex::new(claim),
            work: prepared.task,
            number: prepared.issue.number,
            known: StdMutex::new((prepared.issue.title.clone(), prepared.issue.body().to_owned())),
            withdrawn: StdMutex::default(),
            is_finished: Mutex::new(false),
            is_review: prepared.is_review,
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its title.
    pub(crate) fn title(&self) -> String {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clone()
    }

    /// The branch that an earlier run pushed under this claim, which a new run goes on with. `branches` are those of the
    /// server. One that is not of this issue, or that a person changed since, is left.
    pub(super) async fn own_branch(
        &self,
        repository: &Repository,
        branches: &BTreeMap<String, ObjectId>,
    ) -> Result<Option<String>, AssemblyError> {
        let (Some(pushed), IssueWork::Start { task, .. }) =
            (self.claim.lock().await.record.pushed.clone(), &self.work)
        else {
            return Ok(None);
        };
        let is_there = branches.get(&pushed.name) == Some(&pushed.commit);
        // Anyone who can push can write a claim.
        let is_base = match Task::parse(&task.text)?.frontmatter.base_branch {
            Some(base) => base.as_str() == pushed.name,
            None => repository.head_branch().await? == Some(pushed.name.clone()),
        };
        let is_own = is_there && !is_base && is_version(&pushed.name, &task.branch);
        Ok(is_own.then_some(pushed.name))
    }

    /// The branch of a new run.
    pub(super) fn branch(&self) -> Option<String> {
        match &self.work {
            IssueWork::Start { task, .. } => Some(task.branch.clone()),
            IssueWork::Resume(_) => None,
        }
    }

    /// The id of a new run.
    pub(super) fn new_run(&self) -> Option<RunId> {
        match &self.work {
            IssueWork::Start { run, .. } => Some(run.clone()),
            IssueWork::Resume(_) => None,
        }
    }

    /// The task of a new run.
    pub(super) fn task(&self) -> Option<String> {
        match &self.work {
            IssueWork::Start { task, .. } => Some(task.text.clone()),
            IssueWork::Resume(_) => None,
        }
    }

    /// Builds the run that works on it: a new one, or one that was not finished.
    pub(crate) fn builder(self: &Arc<Self>, builder: RalphBuilder) -> RalphBuilder {
        let builder = builder.issue(self.clone());
        match &self.work {
            IssueWork::Start { .. } => builder,
            // The limits are part of the task, which may have been edited.
            IssueWork::Resume(run) => builder.without_budget().resume(run.facts().id.clone()),
        }
    }

    /// Whether its text is another one than the run has.
    pub(crate) fn is_edited(&self, issue: &Issue) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.0 != issue.title || known.1 != issue.body()
    }

    /// Remembers that the run has this text.
    pub(crate) fn accept_edit(&self, issue: &Issue) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = (issue.title.clone(), issue.body().to_owned());
    }

    /// Remembers that a person took it back: the work on it is to end, and the issue shows this in the end.
    pub(crate) fn withdraw(&self, result: IssueResult) {
        let mut withdrawn = self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner);
        withdrawn.get_or_insert(result);
    }

    /// Whether a person took it back.
    pub(crate) fn is_withdrawn(&self) -> bool {
        let withdrawn = self.withdrawn.lock();
        withdrawn.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Renews the claim, as long as it is polled. Returns why this process does not have it any more.
    pub(crate) async fn keep(&self) -> AssemblyError {
        let claims = &self.queue.claims;
        // Only a claim that names another run is renewed at once: it was made for a run that cannot go on.
        let names_run = self.claim.lock().await.record.run.as_ref() == Some(self.work.run());
        let mut pause = if names_run {
            claims.until_renewal()
        } else {
            Duration::ZERO
        };
        loop {
            sleep(pause).await;
            pause = match self.renew().await {
                Ok(()) => claims.until_renewal(),
                Err(error) => {
                    if self.has_ended().await || matches!(error, GitHubError::ClaimLost { .. }) {
                        return claim_error(&error);
                    }
                    let message = format!(
                        "the claim on issue #{} could not be renewed: {error}",
                        self.number
                    );
                    self.queue.context.reporter.warn(&message);
                    (claims.lease().unsigned_abs() / RETRY).max(Duration::from_millis(100))
                }
            };
        }
    }

    async fn renew(&self) -> Result<(), GitHubError> {
        let mut claim = self.claim.lock().await;
        let run = Some(self.work.run().clone());
        self.queue.claims.renew(&mut claim, run).await
    }

    /// Fails if another process has the issue by now, or may have it soon.
    async fn confirm(&self) -> Result<(), GitHubError> {
        let mut claim = self.claim.lock().await;
        self.queue.claims.confirm(&mut claim).await
    }

    /// Shows on the issue which run works on it: comment and label, where they do not say so already. `issue` was just read.
    pub(crate) async fn show_work(&self, run: &RunDir, issue: &Issue) -> Result<(), AssemblyError> {
        let is_finished = self.is_finished.lock().await;
        if *is_finished || self.has_ended().await {
            return Ok(());
        }
        let host = self.queue.context.surroundings.owner().host;
        let text = format!("ralph works on this: run `{}` on `{host}`.", run.facts().id);
        let issues = &self.queue.issues;
        issues.set_comment(self.number, &text).await?;
        let is_shown = issue.has_status(IssueStatus::InProgress) && !issue.has_status(IssueStatus::Ready);
        // This process may have been stopped meanwhile, and another one may have finished the issue.
        if is_shown || self.has_ended().await {
            return Ok(());
        }
        let is_expected = |issue: &Issue| !issue.has_status(IssueStatus::Done);
        issues
            .set_status_if(self.number, IssueStatus::InProgress, is_expected)
            .await?;
        Ok(())
    }

    /// Whether the claim has ended by the clock, so that another process may have it.
    async fn has_ended(&self) -> bool {
        self.claim.lock().await.record.until <= self.queue.context.surroundings.now()
    }

    /// Shows the result on the issue: ticked steps, comment and label. Then gives the claim up.
    pub(crate) async fn finish(
        &self,
        result: IssueResult,
        run: Option<&RunDir>,
    ) -> Result<IssueResult, AssemblyError> {
        // The issue belongs to another process if this fails.
        let confirmed = self.confirm().await;
        confirmed.map_err(|error| claim_error(&error))?;
        *self.is_finished.lock().await = true;
        let withdrawn = self
            .withdrawn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let result = match (result, withdrawn) {
            (done @ IssueResult::Done { .. }, _) => done,
            (_, Some(withdrawn)) => withdrawn,
            (result, None) => result,
        };
        let (result, steps) = match (result, run) {
            // Steps of a run that did not finish are in no pull request, so another run would leave them out.
            (IssueResult::Done { pull_request }, Some(run)) => self.check_steps(run, pull_request).await,
            (result, _) => (result, Ok(Vec::new())),
        };
        let (status, text) = self.describe(&result, run);
        // Each part is tried: an issue whose text cannot be written must not stay claimed and in progress.
        let issues = &self.queue.issues;
        let comment = issues.set_comment(self.number, &text).await;
        let (steps, titles) = match steps {
            Ok(titles) => (Ok(()), titles),
            Err(error) => (Err(error), Vec::new()),
        };
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        let shown = issues.update(self.number, status, |body| mark_steps_done(body, &titles));
        let (marked, label) = match shown.await {
            Err(error) if !titles.is_empty() => (Err(error), issues.set_status(self.number, status).await),
            label => (Ok(()), label),
        };
        let released = match label {
            Ok(()) => self.queue.claims.release(self.claim.lock().await.clone()).await,
            // The claim ends by itself. A process that takes it over then shows the result.
            Err(_) => Ok(()),
        };
        let parts = [marked, comment, label, released].map(|part| part.map_err(AssemblyError::from));
        let mut failures = std::iter::once(steps).chain(parts).filter_map(Result::err);
        let Some(first) = failures.next() else {
            return Ok(result);
        };
        failures.for_each(|failure| self.queue.context.reporter.warn(&failure.to_string()));
        Err(first)
    }

    /// The status and the comment for a result.
    fn describe(&self, result: &IssueResult, run: Option<&RunDir>) -> (Option<IssueStatus>, String) {
        let of_run = match run {
            Some(run) => format!(" Run `{}`.", run.facts().id),
            None => String::new(),
        };
        let so_far = match (result, run) {
            (IssueResult::Done { .. }, _) | (_, None) => of_run.clone(),
            (_, Some(run)) => match verified_so_far(run) {
                Ok(verified) => format!("{of_run} {verified}"),
                // A journal that cannot be read must not keep the issue claimed and in progress.
                Err(error) => {
                    self.queue.context.reporter.warn(&error.to_string());
                    of_run.clone()
                }
            },
        };
        match result {
            IssueResult::Done { pull_request } => {
                let location = pull_request
                    .as_ref()
                    .map_or(String::new(), |location| format!(" {location}"));
                let text = format!("All steps are done and verified.{location}{of_run}");
                (Some(IssueStatus::Done), text)
            }
            IssueResult::NeedsAttention { reason } => {
                let reason = self.queue.redactor.redact(reason);
                (Some(IssueStatus::NeedsAttention), attention(&reason, &so_far))
            }
            IssueResult::Stopped if self.is_review => {
                let text =
                    format!("The work on the review was stopped; `ralph poll` goes on with it.{of_run}");
                (Some(IssueStatus::Done), text)
            }
            IssueResult::Stopped => {
                let text = format!("The work was stopped; the issue is ready again.{so_far}");
                (Some(IssueStatus::Ready), text)
            }
            IssueResult::Withdrawn { reason, status } => (
                *status,
                format!(
                    "The work ended because {reason}.{so_far} Set the label `{}` to go on.",
                    IssueStatus::Ready.label()
                ),
            ),
        }
    }

    /// The result of a run that is done, and the titles of its verified steps. An issue that was edited while the run finished
    /// needs a person.
    async fn check_steps(
        &self,
        run: &RunDir,
        pull_request: Option<String>,
    ) -> (IssueResult, Result<Vec<String>, AssemblyError>) {
        let is_edited = match self.queue.issues.get(self.number).await {
            Ok(issue) => self.is_edited(&issue) && !self.is_review,
            Err(error) => return (IssueResult::Done { pull_request }, Err(error.into())),
        };
        let titles = verified_steps(run).map(|(titles, _)| titles);
        if !is_edited {
            return (IssueResult::Done { pull_request }, titles);
        }
        let location = pull_request.as_deref().unwrap_or("no pull request");
        let reason = format!(
            "the issue was edited while its run finished, so the run does not have all of it: {location}"
        );
        (IssueResult::NeedsAttention { reason }, titles)
    }
}

/// The titles of the verified steps of a run, and the number of all.
fn verified_steps(run: &RunDir) -> Result<(Vec<String>, usize), AssemblyError> {
    let lines = run.journal()?;
    let ticked = runner::ticked_after(run.facts(), &lines)?;
    let task = Task::parse(run.facts().task_after(&lines))?;
    let all = task.checkboxes.len();
    let verified = task.checkboxes.into_iter().filter(|one| ticked.contains(&one.id));
    Ok((verified.map(|one| one.text).collect(), all))
}

fn verified_so_far(run: &RunDir) -> Result<String, AssemblyError> {
    let (verified, all) = verified_steps(run)?;
    Ok(format!(
        "{} of {all} steps are verified; that work goes on when the issue is claimed on the same host.",
        verified.len()
    ))
}

fn claim_error(error: &GitHubError) -> AssemblyError {
    AssemblyError::from_error(AssemblyErrorKind::Runtime, ErrorTopic::Forge, error).with_hint_of(error.hint())
}

/// A forge for the run of an issue: what is pushed is pushed by the process that has the claim.
pub(super) struct ClaimedForge {
    pub(super) forge: GitHubForge,
    pub(super) issue: Arc<ClaimedIssue>,
}

#[async_trait]
impl Forge for ClaimedForge {
    async fn check(&self, planned: &PlannedPullRequest) -> Result<Option<String>, ForgeError> {
        self.forge.check(planned).await
    }

    async fn base(&self, base_branch: &str) -> Result<PullRequestBase, ForgeError> {
        self.forge.base(base_branch).await
    }

    async fn open(&self, request: &PullRequest) -> Result<OpenedPullRequest, ForgeError> {
        let request = self.issue.claim.lock().await.go_on_with(request);
        let claims = &self.issue.queue.claims;
        claims
            .push_branch(&self.issue.claim, &self.forge, &request)
            .await?;
        // A push may take long, and the next owner of the claim goes on with the branch and its pull request.
        self.issue.confirm().await?;
        self.forge.open_pushed(&request).await
    }

    async fn share_note(&self, notes_ref: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        self.issue.confirm().await?;
        self.forge.share_note(notes_ref, commit).await
    }

    async fn ci(&self, commit: &ObjectId) -> Result<CiReport, ForgeError> {
        self.forge.ci(commit).await
    }

    async fn overlaps(
        &self,
        branch: &str,
        base_branch: &str,
        files: &[String],
    ) -> Result<Vec<PullRequestOverlap>, ForgeError> {
        self.forge.overlaps(branch, base_branch, files).await
    }

    async fn answer(&self, answer: &ReviewAnswer) -> Result<Option<String>, ForgeError> {
        self.issue.confirm().await?;
        self.forge.answer(answer).await
    }

    async fn set_status(
        &self,
        commit: &ObjectId,
        status: &CommitStatus,
        location: &str,
    ) -> Result<(), ForgeError> {
        self.issue.confirm().await?;
        self.forge.set_status(commit, status, location).await
    }

    async fn is_at(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        self.forge.is_at(branch, commit).await
    }
}

/// The text of a comment. The reason may contain words of an agent, so nothing in it is Markdown or a mention.
pub(super) fn attention(reason: &str, of_run: &str) -> String {
    let reason = reason.replace("```", "'''");
    format!(
        "This needs a person.{of_run}\n\n```text\n{reason}\n```\n\nSet the label `{}` to try again.",
        IssueStatus::Ready.label()
    )
}
