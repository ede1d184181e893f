//! `ralph lint`

use std::path::{Path, PathBuf};

use crate::task::LintFinding;

use super::Context;
use super::error::{CliError, Exit};
use super::overrides::configuration;

/// Check a task file and say everything that is wrong with it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The task file
    #[arg(default_value = "ralph_task.md")]
    task: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn lint(context: &Context, args: &Args) -> Result<Exit, CliError> {
    let config = configuration(context, None, Vec::new())?;
    let path = context.surroundings().cwd.join(&args.task);
    let min_checkboxes = config.settings.task.min_checkboxes.get() as usize;
    let findings = crate::task::lint(read(&path)?.as_deref(), min_checkboxes);
    if args.json {
        context.ui.json(&findings)?;
    } else {
        findings
            .iter()
            .try_for_each(|finding| context.ui.data(render(&args.task, finding)))?;
    }
    if findings.is_empty() {
        context.ui.say(format_args!("{} is fine.", args.task.display()));
        return Ok(Exit::Success);
    }
    Err(refusal(&args.task, findings.len()))
}

/// The error that findings lead to, once they are shown.
pub(super) fn refusal(task: &Path, findings: usize) -> CliError {
    let count = match findings {
        1 => "one finding".to_owned(),
        many => format!("{many} findings"),
    };
    CliError::usage(format!("`{}` has {count}", task.display()))
        .hint("`ralph init` writes a task that is fine, to start from")
}

/// The text of a task file; `None` when there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, CliError> {
    match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| CliError::usage(format!("`{}` is not UTF-8 text", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(super::error::io("read", path)(error)),
    }
}

/// A finding as a person reads it: place, reason, fix.
pub(super) fn render(path: &Path, finding: &LintFinding) -> String {
    let line = finding.line.map_or(String::new(), |line| format!(":{line}"));
    format!(
        "{}{line}: {}\n  fix: {}",
        path.display(),
        finding.reason,
        finding.fix
    )
}
