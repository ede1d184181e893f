//! `ralph lint`

use std::path::PathBuf;

use crate::assembly::{AssemblyError, describe_finding, read_task_text};
use crate::task::{LintSeverity, TaskError, lint};
use crate::text::counted;

use super::{CliExit, CliResult, Context, configuration};

/// Check a task file and list everything that is wrong with it
#[derive(Debug, clap::Args)]
pub(super) struct LintArgs {
    /// The task file
    #[arg(default_value = "ralph_task.md")]
    task: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn lint_task(context: &Context, args: &LintArgs) -> CliResult {
    let config = configuration(context, Vec::new())?;
    let path = context.surroundings().dir().join(&args.task);
    let min_checkboxes = config.settings.task.min_checkboxes.get() as usize;
    let text = read_task_text(&path)?;
    let findings = lint(text.as_deref(), min_checkboxes);
    if args.json {
        context.ui.json(&findings)?;
    }
    if text.is_none() {
        return Err(AssemblyError::missing_task(&args.task));
    }
    if !args.json {
        findings
            .iter()
            .try_for_each(|finding| context.ui.data(describe_finding(&args.task, finding)))?;
    }
    let is_error = |finding: &&TaskError| finding.severity == LintSeverity::Error;
    let errors = findings.iter().filter(is_error).count();
    if errors > 0 {
        return Err(AssemblyError::invalid_task(&args.task, errors));
    }
    let task = args.task.display();
    match findings.len() {
        0 => context.ui.say(format_args!("{task} is valid.")),
        warnings => context.ui.say(format_args!(
            "{task} is valid, with {}.",
            counted(warnings, "warning")
        )),
    }
    context.ui.next(format_args!("`ralph run {task}` works on it"));
    Ok(CliExit::Success)
}
