//! `ralph lint`

use std::path::PathBuf;

use crate::assembly::{AssemblyError, describe_finding, read_task_text};
use crate::task::lint;

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
    let findings = lint(read_task_text(&path)?.as_deref(), min_checkboxes);
    if args.json {
        context.ui.json(&findings)?;
    } else {
        findings
            .iter()
            .try_for_each(|finding| context.ui.data(describe_finding(&args.task, finding)))?;
    }
    if findings.is_empty() {
        context.ui.say(format_args!("{} is valid.", args.task.display()));
        return Ok(CliExit::Success);
    }
    Err(AssemblyError::invalid_task(&args.task, findings.len()))
}
