//! `ralph pause`, `rotate`, `stop` and `note`: interventions, left in the run's directory.

use crate::assembly::configuration::project_of;
use crate::id::RunId;
use crate::secret::Redactor;
use crate::state::{Intervention, JournalEntry, JournalLine, RunDir, RunOutcomeKind};

use super::select::{select_live_run, select_run};
use super::{CliError, CliExit, CliResult, Context, overrides};

// Without a doc comment: that would be the help of each command that has these arguments.
#[derive(Debug, clap::Args)]
pub(super) struct LiveRunArgs {
    /// The run; the only live one by default
    run: Option<RunId>,
}

/// Leave a note that the next iteration reads
#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub(super) struct NoteArgs {
    /// The run; the newest one by default
    #[arg(allow_hyphen_values = true)]
    run: Option<RunId>,
    /// The note; `-` reads it from stdin
    #[arg(allow_hyphen_values = true)]
    text: String,
}

pub(super) fn intervene(context: &Context, args: &LiveRunArgs, request: &Intervention) -> CliResult {
    let run = select_live_run(context, args.run.as_ref())?;
    leave(context, &run, request)
}

pub(super) fn note(context: &Context, args: &NoteArgs) -> CliResult {
    let text = match args.text.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| CliError::runtime(format!("cannot read the note from stdin: {error}")))?,
        text => text.to_owned(),
    };
    let text = text.trim();
    if text.is_empty() {
        return Err(CliError::usage("the note is empty"));
    }
    let run = select_run(context, args.run.as_ref())?;
    let is_done = |line: &JournalLine| matches!(line.entry, JournalEntry::Ended { outcome, .. } if outcome == RunOutcomeKind::Done);
    if run.journal()?.iter().any(is_done) {
        return Err(CliError::usage(format!(
            "run `{}` is done, so nothing will read the note",
            run.facts().id
        ))
        .with_hint("write it into the task, and start another run"));
    }
    let project = project_of(&context.assembly, &run);
    let secrets = overrides::configuration_quietly(context, project)?.secrets();
    let text = Redactor::new(secrets).redact(text);
    leave(context, &run, &Intervention::Note { text })
}

fn leave(context: &Context, run: &RunDir, request: &Intervention) -> CliResult {
    run.inbox().leave(request, context.surroundings().now())?;
    let what = match request {
        Intervention::Stop => "Asked it to stop",
        Intervention::Pause => "Asked it to pause after this iteration",
        Intervention::Rotate => "Asked it for a fresh iteration",
        Intervention::Note { .. } => "Left a note",
        Intervention::Doctor => "Asked for a diagnosis",
    };
    context.ui.say(format_args!("{what}: run {}.", run.facts().id));
    Ok(CliExit::Success)
}
