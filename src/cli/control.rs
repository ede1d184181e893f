//! `ralph pause`, `rotate`, `stop` and `note`: interventions, left in the run's directory.

use crate::assembly::configuration::project_of;
use crate::id::RunId;
use crate::secret::Redactor;
use crate::state::{Intervention, RunDir};

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
    run: Option<RunId>,
    /// The note
    text: String,
}

pub(super) fn intervene(context: &Context, args: &LiveRunArgs, request: &Intervention) -> CliResult {
    let run = select_live_run(context, args.run.as_ref())?;
    leave(context, &run, request)
}

pub(super) fn note(context: &Context, args: &NoteArgs) -> CliResult {
    let text = args.text.trim();
    if text.is_empty() {
        return Err(CliError::usage("the note is empty"));
    }
    let run = select_run(context, args.run.as_ref())?;
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
