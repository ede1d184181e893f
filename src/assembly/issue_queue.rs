//! The issues of the configured repository, as this process works on them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::SignedDuration;

use crate::config::{Config, ForgeType};
use crate::github::{
    Claim, ClaimAttempt, Claims, GitHubForge, Issue, IssueStatus, Issues, Reviews, StackChange,
};
use crate::id::RunId;
use crate::scm::{Repository, is_version};
use crate::secret::Redactor;
use crate::state::{RunDir, StateError, is_done, is_in_review};
use crate::task::{SpecIssue, render_ticks};

use super::configuration::{GivenSettings, load_of_run};
use super::control::RunControl;
use super::issue::{ClaimedIssue, attention};
use super::issue_task::{IssueTask, is_run_of, make_task, unfinished_run};
use super::{AssemblyContext, AssemblyError, AssemblyErrorKind, ErrorTopic, forge};

/// The issues of one repository on GitHub, and this process's claims on them.
pub(crate) struct IssueQueue {
    pub(super) context: AssemblyContext,
    config: Config,
    given: GivenSettings,
    /// The address of the repository for git.
    url: String,
    pub(crate) issues: Issues,
    pub(crate) claims: Claims,
    pub(crate) reviews: Reviews,
    pub(super) redactor: Redactor,
    forge: Arc<GitHubForge>,
    /// How many issues could not become a task.
    pub(crate) unfit: AtomicUsize,
}

impl IssueQueue {
    /// The queue of the configured repository. `given` are the settings of the command line.
    pub(crate) async fn open(
        context: &AssemblyContext,
        config: &Config,
        given: GivenSettings,
    ) -> Result<Arc<Self>, AssemblyError> {
        Self::open_at(context, config, given, context.surroundings.dir()).await
    }

    /// Like [`IssueQueue::open`] for the repository in this directory.
    async fn open_at(
        context: &AssemblyContext,
        config: &Config,
        given: GivenSettings,
        dir: &Path,
    ) -> Result<Arc<Self>, AssemblyError> {
        if config.settings.forge.kind != ForgeType::Github {
            let message = "issues need the forge `github`, and `forge.type` is `local`";
            return Err(AssemblyError::usage(message)
                .with_topic(ErrorTopic::Forge)
                .with_hint("add `--push`, or set `[forge] type = \"github\"`"));
        }
        let settings = &config.settings.forge;
        let repository = Repository::open(context.surroundings.builder_host(), dir).await?;
        let name = forge::github_name(config, &repository).await?;
        let client = forge::create_client(context, config).await?;
        let owner = context.surroundings.owner();
        let lease = SignedDuration::try_from(settings.claim).unwrap_or(SignedDuration::MAX);
        let owner = format!("{}:{}", owner.host, owner.pid);
        let (url, redactor) = (&settings.github.url, Redactor::new(config.secrets()));
        let forge = GitHubForge::new(client.clone(), name.clone(), url, repository, redactor.clone());
        let forge = Arc::new(forge);
        Ok(Arc::new(Self {
            context: context.clone(),
            config: config.clone(),
            given,
            url: format!("{}/{name}.git", settings.github.url.trim_end_matches('/')),
            issues: Issues::new(client.clone(), name.clone()),
            reviews: Reviews::new(client, name),
            claims: Claims::new(forge.clone(), &owner, lease),
            redactor,
            forge,
            unfit: AtomicUsize::new(0),
        }))
    }

    /// The address of the repository.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Changes the base of pull requests whose base is merged, before its branch is deleted. Returns what was done, for people.
    pub(crate) async fn retarget_stacked(&self) -> Result<Vec<StackChange>, AssemblyError> {
        let changes = self.forge.retarget_stacked(&self.claims).await;
        changes.map_err(|error| {
            AssemblyError::from_error(AssemblyErrorKind::Runtime, ErrorTopic::Forge, &error)
                .with_hint_of(error.hint())
        })
    }

    /// Claims the issue of a run on this host that is done, if reviewers of its pull request ask for something. The run goes on
    /// with that, also if an earlier process was stopped meanwhile.
    pub(crate) async fn claim_reviewed(
        self: &Arc<Self>,
        run: &RunId,
    ) -> Result<Option<Arc<ClaimedIssue>>, AssemblyError> {
        let run = match self.context.surroundings.runs()?.open(run) {
            Ok(run) if run.holder()?.is_none() => run,
            // Another process works on it.
            Ok(_) | Err(StateError::NoSuchRun { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Anyone who can push can write the marker of another run into a pull request.
        let issue = run.facts().issue;
        let Some(issue) = issue.filter(|issue| is_run_of(&run, &self.url, *issue)) else {
            return Ok(None);
        };
        let lines = run.journal()?;
        if !is_done(&lines) && !is_in_review(&lines) {
            return Ok(None);
        }
        let control = RunControl::with(self.context.clone(), self.given.clone());
        let news = control.take_reviews(&run).await?;
        if !news.is_due {
            return Ok(None);
        }
        self.claim_resumed(&run, issue).await.map(Some)
    }

    /// The issues that an issue waits for. An issue that is not a specification waits for nothing: its claim says why.
    /// `listed` are issues that were just read.
    pub(crate) async fn waits_for(&self, issue: &Issue, listed: &[Issue]) -> Result<Vec<u64>, AssemblyError> {
        let depends = match SpecIssue::parse(&issue.title, issue.body()) {
            Ok(spec) => spec.depends,
            Err(_) => Vec::new(),
        };
        Ok(self.issues.unfinished(issue, &depends, listed).await?)
    }

    /// Claims an issue with this status and labels it as in progress. Refuses one that is not ready or not to be trusted;
    /// one that cannot become a task gets the label `status:needs-attention` with the reason. A run of this issue that was
    /// not finished goes on.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        number: u64,
        status: IssueStatus,
    ) -> Result<Arc<ClaimedIssue>, AssemblyError> {
        self.check(number, status).await?;
        // The claim names the run from the beginning, so that it needs no second push for that.
        let new = RunId::random();
        let unfinished = unfinished_run(&self.context, &self.url, number)?;
        let likely = unfinished.map_or(new.clone(), |run| run.facts().id.clone());
        let claim = self.claim_now(number, likely).await?;
        let prepared = match self.finish_for(&claim).await {
            Ok(()) => self.prepare(number, status, new).await,
            Err(error) => Err(error),
        };
        let error = match prepared {
            Ok(prepared) => return Ok(Arc::new(ClaimedIssue::new(self.clone(), claim, prepared))),
            Err(error) => error,
        };
        // After a failure that may pass the label may be set, and without a claim no process would take the issue over.
        let is_refused = error.kind() == AssemblyErrorKind::Usage;
        if is_refused && status != IssueStatus::InProgress {
            self.claims.release(claim).await?;
        }
        Err(error)
    }

    /// Shows the result of a process that was killed between its pull request and the label. What it did is not done again.
    async fn finish_for(&self, claim: &Claim) -> Result<(), AssemblyError> {
        let number = claim.issue;
        let Some(before) = &claim.taken_from else {
            return Ok(());
        };
        if self.run_in_review(number)?.is_some() {
            return Ok(());
        }
        // A process that only took the claim over, and died, did not push: the run that did may be done.
        let pushed = before.pushed.as_ref().and_then(|pushed| pushed.runs.last());
        let mut finished = None;
        for run in before.run.iter().chain(pushed) {
            let location = self.issues.finished_pull_request(run).await?;
            finished = finished.or(location.map(|location| (location, run)));
        }
        let Some((location, run)) = finished else {
            return Ok(());
        };
        let text = format!("All steps are done and verified. {location} Run `{run}`.");
        self.issues.set_comment(number, &text).await?;
        self.issues.set_status(number, Some(IssueStatus::Done)).await?;
        self.claims.release(claim.clone()).await?;
        Err(AssemblyError::usage(format!(
            "issue #{number} was done by run {run}, whose process ended before it could say so: {location}"
        ))
        .with_topic(ErrorTopic::Forge))
    }

    /// Claims the issue of a run that is to go on, whatever its status is: a person asked for it. `None` if the run does not
    /// work on an issue, or pushes nothing.
    pub(crate) async fn claim_of_run(
        context: &AssemblyContext,
        given: GivenSettings,
        run: &RunDir,
    ) -> Result<Option<Arc<ClaimedIssue>>, AssemblyError> {
        let Some(number) = run.facts().issue else {
            return Ok(None);
        };
        let config = load_of_run(context, run, None, &given)?;
        if config.settings.forge.kind == ForgeType::Local {
            return Ok(None);
        }
        let queue = Self::open_at(context, &config, given, &run.facts().repository).await?;
        queue.claim_resumed(run, number).await.map(Some)
    }

    /// Claims an issue for its run, which goes on.
    async fn claim_resumed(
        self: &Arc<Self>,
        run: &RunDir,
        number: u64,
    ) -> Result<Arc<ClaimedIssue>, AssemblyError> {
        let claim = self.claim_now(number, run.facts().id.clone()).await?;
        let issue = match self.issues.get(number).await {
            Ok(issue) => issue,
            Err(error) => {
                self.claims.release(claim).await?;
                return Err(error.into());
            }
        };
        let status = Some(IssueStatus::InProgress);
        self.issues.set_status(number, status).await?;
        let lines = run.journal()?;
        let prepared = PreparedIssue {
            issue,
            task: IssueWork::Resume(Box::new(run.clone())),
            is_review: is_in_review(&lines) || is_done(&lines),
        };
        Ok(Arc::new(ClaimedIssue::new(self.clone(), claim, prepared)))
    }

    /// The run of an issue on this host that was done, and whose work on a review was interrupted.
    fn run_in_review(&self, number: u64) -> Result<Option<RunDir>, AssemblyError> {
        let Some(run) = unfinished_run(&self.context, &self.url, number)? else {
            return Ok(None);
        };
        Ok(is_in_review(&run.journal()?).then_some(run))
    }

    /// Shows on an issue with this status that it waits for others. `false` if another process has it, or it does not wait any
    /// more.
    pub(crate) async fn hold_back(&self, number: u64, status: IssueStatus) -> Result<bool, AssemblyError> {
        let ClaimAttempt::Won(claim) = self.claims.claim(number, None).await? else {
            return Ok(false);
        };
        let shown = self.show_waiting(number, status).await;
        self.claims.release(claim).await?;
        shown
    }

    async fn show_waiting(&self, number: u64, status: IssueStatus) -> Result<bool, AssemblyError> {
        let issue = self.check(number, status).await?;
        let waits_for = self.waits_for(&issue, &[]).await?;
        if waits_for.is_empty() {
            return Ok(false);
        }
        let waits_for = numbers(&waits_for);
        Ok(self.issues.hold_back(number, status, &waits_for).await?)
    }

    async fn claim_now(&self, number: u64, run: RunId) -> Result<Claim, AssemblyError> {
        match self.claims.claim(number, Some(run)).await? {
            ClaimAttempt::Won(claim) => Ok(claim),
            ClaimAttempt::Held(record) => {
                let run = record.run.map_or(String::new(), |run| format!(" in run {run}"));
                Err(AssemblyError::usage(format!(
                    "issue #{number} is claimed by {}{run} until {}",
                    record.owner, record.until
                ))
                .with_topic(ErrorTopic::Forge)
                .with_hint("wait for it to end; a claim that is not renewed is taken over after that time"))
            }
        }
    }

    /// Refuses an issue that is not ready, or whose author or labels are not trusted.
    async fn check(&self, number: u64, status: IssueStatus) -> Result<Issue, AssemblyError> {
        let issue = self.issues.get(number).await?;
        match self.issues.refusal(&issue, status).await? {
            Some(reason) => Err(AssemblyError::usage(reason).with_topic(ErrorTopic::Forge).with_hint(
                "it needs the labels `spec` and `status:ready`; its author and the people who set them need write permission",
            )),
            None => Ok(issue),
        }
    }

    /// The work on an issue that is claimed. What was true before the claim is checked again. `new` is the id of a new run.
    async fn prepare(
        &self,
        number: u64,
        status: IssueStatus,
        new: RunId,
    ) -> Result<PreparedIssue, AssemblyError> {
        let issue = self.check(number, status).await?;
        let waits_for = self.waits_for(&issue, &[]).await?;
        if !waits_for.is_empty() {
            let message = format!("issue #{number} waits for {}", numbers(&waits_for));
            return Err(AssemblyError::usage(message)
                .with_topic(ErrorTopic::Forge)
                .with_hint("they are done when they have the label `status:done`"));
        }
        let (task, is_review) = match self.run_in_review(number)? {
            Some(run) => (IssueWork::Resume(Box::new(run)), true),
            None => (self.choose_work(&issue, new).await?, false),
        };
        let is_expected = |issue: &Issue| issue.has_status(status);
        let in_progress = IssueStatus::InProgress;
        if !self
            .issues
            .set_status_if(number, in_progress, is_expected)
            .await?
        {
            let message = format!(
                "issue #{number} does not have the label `{}` any more",
                status.label()
            );
            return Err(AssemblyError::usage(message).with_topic(ErrorTopic::Forge));
        }
        Ok(PreparedIssue {
            issue,
            task,
            is_review,
        })
    }

    /// A run of the issue that was not finished, if it can follow the text, else a new one.
    async fn choose_work(&self, issue: &Issue, new: RunId) -> Result<IssueWork, AssemblyError> {
        let number = issue.number;
        let task = match self.make_task(issue).await? {
            Ok(task) => task,
            Err(reason) => {
                self.issues.set_comment(number, &attention(&reason, "")).await?;
                let status = Some(IssueStatus::NeedsAttention);
                self.issues.set_status(number, status).await?;
                self.unfit.fetch_add(1, Ordering::Relaxed);
                return Err(AssemblyError::usage(reason).with_topic(ErrorTopic::Forge));
            }
        };
        Ok(match unfinished_run(&self.context, &self.url, number)? {
            Some(run) if self.follows(&run, &task).await => IssueWork::Resume(Box::new(run)),
            _ => IssueWork::Start { task, run: new },
        })
    }

    /// The task of an issue, or why it cannot become one.
    async fn make_task(&self, issue: &Issue) -> Result<Result<IssueTask, String>, AssemblyError> {
        let made = make_task(&self.context, &self.config, &self.given, &self.url, issue).await?;
        Ok(made.map_err(|unfit| unfit.reason))
    }

    /// Whether a run can go on with this task, which it gets.
    async fn follows(&self, run: &RunDir, task: &IssueTask) -> bool {
        let edited = self.edit_run(run, &task.branch, &task.text).await;
        if let Err(error) = &edited {
            let id = &run.facts().id;
            self.context.reporter.warn(&format!(
                "run {id} of the same issue cannot go on, so another one is started: {error}"
            ));
        }
        edited.is_ok()
    }

    /// Gives a run the text that its issue has now. Returns why its work has to wait for a person.
    pub(crate) async fn apply_edit(
        &self,
        run: &RunDir,
        issue: &Issue,
    ) -> Result<Option<String>, AssemblyError> {
        if let Some(reason) = self.issues.refusal_of_author(issue).await? {
            return Ok(Some(reason));
        }
        Ok(match self.make_task(issue).await? {
            Err(reason) => Some(reason),
            Ok(task) => match self.edit_run(run, &task.branch, &task.text).await {
                Ok(()) => None,
                Err(error) => Some(format!("the issue was edited: {error}")),
            },
        })
    }

    async fn edit_run(&self, run: &RunDir, branch: &str, text: &str) -> Result<(), AssemblyError> {
        let facts = run.facts();
        if !is_version(&facts.branch, branch) {
            let message = format!("its branch is `{branch}` now, and the run has `{}`", facts.branch);
            return Err(AssemblyError::usage(message).with_topic(ErrorTopic::Forge));
        }
        let untick = |text: &str| render_ticks(text, &BTreeSet::new());
        if untick(&run.next_task()?) == untick(&self.redactor.redact(text)) {
            return Ok(());
        }
        let control = RunControl::with(self.context.clone(), self.given.clone());
        control.edit(run, text).await.map(drop)
    }
}

/// An issue that was claimed, and what is done about it.
pub(super) struct PreparedIssue {
    pub(super) issue: Issue,
    pub(super) task: IssueWork,
    /// Whether its run was done before, and works on a review now.
    pub(super) is_review: bool,
}

/// How the work on an issue begins.
pub(super) enum IssueWork {
    /// With a new run, which gets this id.
    Start { task: IssueTask, run: RunId },
    /// With a run that was not finished.
    Resume(Box<RunDir>),
}

impl IssueWork {
    /// The id of its run.
    pub(super) fn run(&self) -> &RunId {
        match self {
            Self::Start { run, .. } => run,
            Self::Resume(run) => &run.facts().id,
        }
    }
}

/// Issues for people: `#3, #5`.
pub(crate) fn numbers(issues: &[u64]) -> String {
    let names: Vec<String> = issues.iter().map(|number| format!("#{number}")).collect();
    names.join(", ")
}
