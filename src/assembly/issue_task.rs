//! From the text of an issue to a task: its steps, with the commands and limits of its base branch.

use std::io::Write;
use std::path::Path;

use crate::config::{self, Config};
use crate::github::Issue;
use crate::scm::texts_at;
use crate::state::{JournalEntry, JournalLine, RunDir, RunOutcomeKind, is_done, since_done};
use crate::task::{LintSeverity, SpecChecks, SpecIssue, Task, TaskError, lint};

use super::builder::mirror;
use super::configuration::{GivenSettings, inputs};
use super::{AssemblyContext, AssemblyError, ErrorTopic, describe_finding, io_error};

/// The configuration file of a project.
const PROJECT_FILE: &str = "ralph.toml";

/// A task that was made from an issue.
pub(super) struct IssueTask {
    /// The branch for the work.
    pub(super) branch: String,
    /// The text of the task file.
    pub(super) text: String,
}

/// An issue that cannot become a task, and why.
pub(super) struct UnfitIssue {
    pub(super) reason: String,
}

/// The task of an issue. Its branch, base and steps are those of the issue; the commands and limits are those of the
/// configuration on the base branch, which only people who may push there can change.
pub(super) async fn make_task(
    context: &AssemblyContext,
    config: &Config,
    given: &GivenSettings,
    url: &str,
    issue: &Issue,
) -> Result<Result<IssueTask, UnfitIssue>, AssemblyError> {
    let number = issue.number;
    let spec = match SpecIssue::parse(&issue.title, issue.body()) {
        Ok(spec) => spec,
        Err(findings) => return Ok(Err(unfit(number, &findings, None))),
    };
    let repository = mirror(context, config, url).await?;
    let base = match &spec.base {
        Some(base) => base.to_string(),
        None => repository.head_branch().await?.ok_or_else(|| {
            AssemblyError::usage(format!("{url} has no default branch")).with_topic(ErrorTopic::Forge)
        })?,
    };
    let name = format!("refs/heads/{base}");
    let Some(commit) = repository.read_ref(&name).await? else {
        let reason = format!("issue #{number} starts from the branch `{base}`, which is not on GitHub");
        return Ok(Err(UnfitIssue { reason }));
    };
    let file = texts_at(&repository, &commit, &[PROJECT_FILE.to_owned()]).await?;
    let of_base = configuration_of(context, given, file.into_iter().next().flatten())?;
    let text = spec.task(number, &checks(&of_base, url));
    let findings = lint(Some(&text), 1);
    if findings
        .iter()
        .any(|finding| finding.severity == LintSeverity::Error)
    {
        return Ok(Err(unfit(number, &findings, Some(&base))));
    }
    Ok(Ok(IssueTask {
        branch: spec.branch.to_string(),
        text,
    }))
}

/// The configuration with this text in place of the project's file. Settings of the command line win, as always.
fn configuration_of(
    context: &AssemblyContext,
    given: &GivenSettings,
    text: Option<String>,
) -> Result<Config, AssemblyError> {
    let failed = io_error("write", Path::new(PROJECT_FILE));
    let mut file = tempfile::NamedTempFile::new().map_err(io_error("create", Path::new(PROJECT_FILE)))?;
    file.write_all(text.unwrap_or_default().as_bytes())
        .map_err(failed)?;
    let given = GivenSettings {
        config_file: Some(file.path().to_owned()),
        ..given.clone()
    };
    config::load(&inputs(context, None, &given)?).map_err(Into::into)
}

fn checks(config: &Config, url: &str) -> SpecChecks {
    let (task, budget) = (&config.settings.task, &config.settings.budget);
    SpecChecks {
        repo_url: Some(url.to_owned()),
        setup_command: task.setup_command.clone(),
        test_command: task.test_command.clone(),
        verify_commands: task.verify_commands.clone(),
        max_iterations: budget.max_iterations.get(),
        max_wall_time_minutes: budget.max_wall_time.as_secs() / 60,
        max_cost_usd_estimate: budget.max_cost.dollars(),
        max_tokens_total: budget.max_tokens_total.map(std::num::NonZeroU64::get),
    }
}

fn unfit(number: u64, findings: &[TaskError], base: Option<&str>) -> UnfitIssue {
    let name = format!("issue #{number}");
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| describe_finding(Path::new(&name), finding))
        .collect();
    let place = base.map_or("of the base branch".to_owned(), |base| {
        format!("on the branch `{base}`")
    });
    UnfitIssue {
        reason: format!(
            "issue #{number} cannot become a task:\n{}\nThe commands are `test_command` and `verify_commands` in `[task]` of \
             `{PROJECT_FILE}` {place}; the steps are headings.",
            lines.join("\n")
        ),
    }
}

/// The newest run of this issue that was stopped, paused or killed, and that no process works on. `url` is the repository.
pub(super) fn unfinished_run(
    context: &AssemblyContext,
    url: &str,
    issue: u64,
) -> Result<Option<RunDir>, AssemblyError> {
    let runs = context.surroundings.runs()?.list()?;
    let Some(run) = runs.iter().rev().find(|run| is_run_of(run, url, issue)) else {
        return Ok(None);
    };
    let failed = RunOutcomeKind::Failed;
    let has_failed =
        |line: &JournalLine| matches!(line.entry, JournalEntry::Ended { outcome, .. } if outcome == failed);
    let lines = run.journal()?;
    let is_over = is_done(&lines) || since_done(&lines).iter().any(has_failed);
    let can_go_on = run.holder()?.is_none() && !is_over;
    Ok(can_go_on.then(|| run.clone()))
}

/// Whether a run works on this issue of the repository at this address.
pub(super) fn is_run_of(run: &RunDir, url: &str, issue: u64) -> bool {
    let task = Task::parse(&run.facts().task);
    run.facts().issue == Some(issue)
        && task.is_ok_and(|task| task.frontmatter.repo_url.as_deref() == Some(url))
}
