//! An issue that this process has claimed: from its text to a task, and from the run back to the issue.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::config::{Config, ForgeType};
use crate::github::{Claim, ClaimAttempt, Claims, GitHubError, IssueStatus, Issues};
use crate::id::{ObjectId, RunId};
use crate::runner;
use crate::scm::{
    CiReport, Forge, ForgeError, OpenedPullRequest, PlannedPullRequest, PullRequest, PullRequestBase,
    PullRequestOverlap, Repository,
};
use crate::secret::Redactor;
use crate::state::RunDir;
use crate::task::{LintSeverity, SpecChecks, SpecIssue, TaskError, lint, mark_steps_done};

use super::{AssemblyContext, AssemblyError, AssemblyErrorKind, describe_finding, forge};

/// How long a claim holds after the last renewal.
const LEASE: SignedDuration = SignedDuration::from_mins(15);
/// How often it is renewed.
const RENEWAL: Duration = Duration::from_secs(5 * 60);
/// When a renewal is tried again that failed.
const RETRY: Duration = Duration::from_secs(30);

/// How the work on an issue ended.
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
}

/// An issue that this process has claimed.
pub(crate) struct ClaimedIssue {
    number: u64,
    issues: Issues,
    claims: Claims,
    claim: Mutex<Claim>,
    context: AssemblyContext,
    redactor: Redactor,
    spec: SpecIssue,
    /// The text of its task file.
    pub(super) task: String,
}

impl ClaimedIssue {
    /// Claims an issue and labels it as in progress. Refuses one that is not ready or not to be trusted; one that cannot
    /// become a task gets the label `status:needs-attention` with the reason.
    pub(crate) async fn claim(
        context: &AssemblyContext,
        config: &Config,
        number: u64,
    ) -> Result<Self, AssemblyError> {
        if config.settings.forge.kind != ForgeType::Github {
            let message = "issues need the forge `github`, and `forge.type` is `local`";
            return Err(
                AssemblyError::usage(message).with_hint("add `--push`, or set `[forge] type = \"github\"`")
            );
        }
        let host = context.surroundings.builder_host();
        let repository = Repository::open(host, context.surroundings.dir()).await?;
        let name = forge::github_name(config, &repository).await?;
        let redactor = Redactor::new(config.secrets());
        let client = forge::create_client(context, config, redactor.clone()).await?;
        let issues = Issues::new(client.clone(), name.clone());
        check(&issues, number).await?;
        let owner = context.surroundings.owner();
        let claims = Claims::new(client, name, &format!("{}:{}", owner.host, owner.pid), LEASE);
        let claim = match claims.claim(number).await? {
            ClaimAttempt::Won(claim) => claim,
            ClaimAttempt::Held(record) => {
                let run = record.run.map_or(String::new(), |run| format!(" in run {run}"));
                return Err(AssemblyError::usage(format!(
                    "issue #{number} is claimed by {}{run} until {}",
                    record.owner, record.until
                ))
                .with_hint("wait for it to end; a claim that is not renewed is taken over after that time"));
            }
        };
        match prepare(&issues, number, config).await {
            Ok((spec, task)) => Ok(Self {
                number,
                issues,
                claims,
                claim: Mutex::new(claim),
                context: context.clone(),
                redactor,
                spec,
                task,
            }),
            Err(error) => {
                claims.release(claim).await?;
                Err(error)
            }
        }
    }

    /// The branch of the run.
    pub(super) fn branch(&self) -> String {
        self.spec.branch.to_string()
    }

    /// Renews the claim for a run, as long as it is polled. Returns why this process does not have it any more.
    pub(crate) async fn keep(&self, run: &RunId) -> AssemblyError {
        loop {
            let pause = match self.renew(Some(run.clone())).await {
                Ok(()) => RENEWAL,
                Err(error) => {
                    let has_ended = self.claim.lock().await.record.until <= self.context.surroundings.now();
                    if has_ended || matches!(error, GitHubError::ClaimLost { .. }) {
                        return claim_error(&error);
                    }
                    let message = format!(
                        "the claim on issue #{} could not be renewed: {error}",
                        self.number
                    );
                    self.context.reporter.warn(&message);
                    RETRY
                }
            };
            sleep(pause).await;
        }
    }

    /// Renews the claim. A run that it names stays named.
    async fn renew(&self, run: Option<RunId>) -> Result<(), GitHubError> {
        let mut claim = self.claim.lock().await;
        let run = run.or_else(|| claim.record.run.clone());
        self.claims.renew(&mut claim, run).await
    }

    /// Shows the result on the issue: ticked steps, comment and label. Then gives the claim up.
    pub(crate) async fn finish(
        &self,
        result: IssueResult,
        run: Option<&RunDir>,
    ) -> Result<(), AssemblyError> {
        // The issue belongs to another process if this fails.
        let renewed = self.renew(run.map(|run| run.facts().id.clone())).await;
        renewed.map_err(|error| claim_error(&error))?;
        let steps = match run {
            Some(run) => self.write_steps(run).await,
            None => Ok(()),
        };
        let of_run = run.map_or(String::new(), |run| format!(" Run `{}`.", run.facts().id));
        let (status, text) = match result {
            IssueResult::Done { pull_request } => {
                let location = pull_request.map_or(String::new(), |location| format!(" {location}"));
                (
                    IssueStatus::Done,
                    format!("All steps are done and verified.{location}{of_run}"),
                )
            }
            IssueResult::NeedsAttention { reason } => {
                let reason = self.redactor.redact(&reason);
                (IssueStatus::NeedsAttention, attention(&reason, &of_run))
            }
            IssueResult::Stopped => (
                IssueStatus::Ready,
                format!("The work was stopped; the issue is ready again.{of_run}"),
            ),
        };
        // Each part is tried: an issue whose text cannot be written must not stay claimed and in progress.
        let comment = self.issues.set_comment(self.number, &text).await;
        let label = self.issues.set_status(self.number, status).await;
        let released = self.claims.release(self.claim.lock().await.clone()).await;
        let parts = [comment, label, released].map(|part| part.map_err(AssemblyError::from));
        let mut failures = std::iter::once(steps).chain(parts).filter_map(Result::err);
        let Some(first) = failures.next() else {
            return Ok(());
        };
        failures.for_each(|failure| self.context.reporter.warn(&failure.to_string()));
        Err(first)
    }

    /// Marks the verified steps in the issue, whose text may have changed meanwhile.
    async fn write_steps(&self, run: &RunDir) -> Result<(), AssemblyError> {
        let ticked = runner::ticked_after(run.facts(), &run.journal()?)?;
        let issue = self.issues.get(self.number).await?;
        let marked = mark_steps_done(issue.body(), &self.spec.titles(&ticked));
        if marked != issue.body() {
            self.issues.set_body(self.number, &marked).await?;
        }
        Ok(())
    }
}

fn claim_error(error: &GitHubError) -> AssemblyError {
    AssemblyError::from_error(AssemblyErrorKind::Runtime, error).with_hint_of(error.hint())
}

/// A forge for the run of an issue: what is pushed is pushed by the process that has the claim.
pub(super) struct ClaimedForge {
    pub(super) forge: Arc<dyn Forge>,
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
        self.issue.renew(None).await?;
        self.forge.open(request).await
    }

    async fn share_note(&self, notes_ref: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        self.issue.renew(None).await?;
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

    async fn is_at(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        self.forge.is_at(branch, commit).await
    }
}

/// Refuses an issue that is not ready, or that people without write permission had their hands in.
async fn check(issues: &Issues, number: u64) -> Result<(), AssemblyError> {
    let issue = issues.get(number).await?;
    match issues.refusal(&issue).await? {
        Some(reason) => Err(AssemblyError::usage(reason).with_hint(
            "it needs the labels `spec` and `status:ready`; its author and the people who set them need write permission",
        )),
        None => Ok(()),
    }
}

/// The task of an issue that is claimed. What was true before the claim is checked again.
async fn prepare(
    issues: &Issues,
    number: u64,
    config: &Config,
) -> Result<(SpecIssue, String), AssemblyError> {
    check(issues, number).await?;
    let issue = issues.get(number).await?;
    let prepared = SpecIssue::parse(&issue.title, issue.body()).and_then(|spec| {
        let text = spec.task(number, &checks(config));
        let findings = lint(Some(&text), 1);
        let is_fine = findings
            .iter()
            .all(|finding| finding.severity == LintSeverity::Warning);
        if is_fine { Ok((spec, text)) } else { Err(findings) }
    });
    let (spec, text) = match prepared {
        Ok(prepared) => prepared,
        Err(findings) => {
            let reason = explain(number, &findings);
            issues.set_comment(number, &attention(&reason, "")).await?;
            issues.set_status(number, IssueStatus::NeedsAttention).await?;
            return Err(AssemblyError::usage(reason));
        }
    };
    let waits_for = issues.unfinished(number, &spec.depends).await?;
    if !waits_for.is_empty() {
        let names: Vec<String> = waits_for.iter().map(|number| format!("#{number}")).collect();
        let message = format!("issue #{number} waits for {}", names.join(", "));
        return Err(
            AssemblyError::usage(message).with_hint("they are done when they have the label `status:done`")
        );
    }
    issues.set_status(number, IssueStatus::InProgress).await?;
    Ok((spec, text))
}

fn checks(config: &Config) -> SpecChecks {
    let (task, budget) = (&config.settings.task, &config.settings.budget);
    SpecChecks {
        test_command: task.test_command.clone(),
        verify_commands: task.verify_commands.clone(),
        max_iterations: budget.max_iterations.get(),
        max_wall_time_minutes: budget.max_wall_time.as_secs() / 60,
        max_cost_usd_estimate: budget.max_cost.dollars(),
        max_tokens_total: budget.max_tokens_total.map(std::num::NonZeroU64::get),
    }
}

fn explain(number: u64, findings: &[TaskError]) -> String {
    let name = format!("issue #{number}");
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| describe_finding(Path::new(&name), finding))
        .collect();
    format!(
        "issue #{number} cannot become a task:\n{}\nThe commands are `test_command` and `verify_commands` in `[task]` of `ralph.toml`; \
         the steps are headings.",
        lines.join("\n")
    )
}

/// The text of a comment. The reason may contain words of an agent, so nothing in it is Markdown or a mention.
fn attention(reason: &str, of_run: &str) -> String {
    let reason = reason.replace("```", "'''");
    format!(
        "This needs a person.{of_run}\n\n```text\n{reason}\n```\n\nSet the label `{}` to try again.",
        IssueStatus::Ready.label()
    )
}
