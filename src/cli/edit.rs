//! `ralph edit` and `ralph retry`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use crate::exec::Command;
use crate::state::RunDir;

use super::control::said;
use super::{CliError, CliExit, CliResult, Context, io_error, select_run, temp_dir};

/// Change the task of a run: it goes on with the new text
///
/// Without `--file` the task opens in `$VISUAL` or `$EDITOR`, or is read from stdin if that is not a terminal. The text is
/// checked first. Budgets may grow and shrink, and a checkbox whose text or `verify:` changed is open again.
#[derive(Debug, clap::Args)]
pub(super) struct EditArgs {
    /// The run; the newest one by default
    run: Option<String>,
    /// Take the new text from this file; `-` is stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Take the newest work of a run back, and go on from an earlier iteration
///
/// What was spent stays spent. The default is the last iteration before the newest one that was no gutter and left no
/// failing tests.
#[derive(Debug, clap::Args)]
pub(super) struct RetryArgs {
    /// The run; the newest one by default
    run: Option<String>,
    /// Go back to the code as it was after this iteration; 0 is the beginning
    #[arg(long, value_name = "N")]
    from: Option<u32>,
}

pub(super) async fn edit(context: &Context, args: EditArgs) -> CliResult {
    let run = select_run(context, args.run.as_deref())?;
    let text = match args.file.as_deref() {
        Some(path) if path != Path::new("-") => {
            let path = context.surroundings().dir().join(path);
            std::fs::read_to_string(&path).map_err(io_error("read", &path))?
        }
        None if std::io::stdin().is_terminal() => edited(context, &run).await?,
        _ => from_stdin()?,
    };
    if text == run.next_task()? {
        context.ui.say("The task is the same: nothing to change.");
        context
            .ui
            .next(format_args!("`ralph status {}` shows the run", run.facts().id));
        return Ok(CliExit::Success);
    }
    let request = context.control()?.edit(&run, &text).await?;
    said(context, &run, &request);
    Ok(CliExit::Success)
}

pub(super) fn retry(context: &Context, args: &RetryArgs) -> CliResult {
    let run = select_run(context, args.run.as_deref())?;
    let request = context.control()?.retry(&run, args.from)?;
    said(context, &run, &request);
    Ok(CliExit::Success)
}

/// The text on standard input.
fn from_stdin() -> Result<String, CliError> {
    let text = std::io::read_to_string(std::io::stdin())
        .map_err(|error| CliError::runtime(format!("cannot read the task from stdin: {error}")))?;
    if text.trim().is_empty() {
        return Err(
            CliError::usage("standard input is empty, so there is no text for the task")
                .with_hint("give it with `--file FILE`, or edit it at a terminal"),
        );
    }
    Ok(text)
}

/// Lets a person edit the task in their editor.
async fn edited(context: &Context, run: &RunDir) -> Result<String, CliError> {
    let surroundings = context.surroundings();
    let editor = surroundings.var("VISUAL").or_else(|| surroundings.var("EDITOR"));
    let editor = editor.ok_or_else(|| {
        CliError::usage("no editor is set")
            .with_hint("set EDITOR, or give the new text with `--file` or on stdin")
    })?;
    let dir = temp_dir()?;
    let file = dir.path().join("ralph_task.md");
    std::fs::write(&file, run.next_task()?).map_err(io_error("write", &file))?;
    // An editor may have arguments: `code --wait`.
    let command =
        Command::shell(format!("{editor} \"$RALPH_EDITED\"")).env("RALPH_EDITED", file.display().to_string());
    let host = surroundings.desktop_host();
    let status = host.run_on_terminal(&command).await;
    let status = status.map_err(|error| CliError::runtime(format!("cannot start `{editor}`: {error}")))?;
    if !status.success() {
        return Err(CliError::runtime(format!(
            "`{editor}` failed: {status}; nothing was changed"
        )));
    }
    std::fs::read_to_string(&file).map_err(io_error("read", &file))
}
