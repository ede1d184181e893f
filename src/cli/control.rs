//! `ralph pause`, `rotate`, `stop` and `note`: interventions, left in the run's directory.

use crate::assembly::configuration::project_of;
use crate::id::RunId;
use crate::secret::Redactor;
use crate::state::{Intervention, RunDir};

use super::Context;
use super::error::{CliError, CliExit};
use super::overrides;
use super::select::{RunFilter, select_run};

/// Pause a run after its current iteration
#[derive(Debug, clap::Args)]
pub(super) struct PauseArgs {
    /// The run; the only live one by default
    run: Option<RunId>,
}

/// End the current iteration of a run and start the next one
#[derive(Debug, clap::Args)]
pub(super) struct RotateArgs {
    /// The run; the only live one by default
    run: Option<RunId>,
}

/// Stop a run now; `ralph resume` continues from its last iteration
#[derive(Debug, clap::Args)]
pub(super) struct StopArgs {
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

pub(super) fn pause(context: &Context, args: &PauseArgs) -> Result<CliExit, CliError> {
    ask(context, args.run.as_ref(), RunFilter::Live, &Intervention::Pause)
}

pub(super) fn rotate(context: &Context, args: &RotateArgs) -> Result<CliExit, CliError> {
    ask(context, args.run.as_ref(), RunFilter::Live, &Intervention::Rotate)
}

pub(super) fn stop(context: &Context, args: &StopArgs) -> Result<CliExit, CliError> {
    ask(context, args.run.as_ref(), RunFilter::Live, &Intervention::Stop)
}

pub(super) fn note(context: &Context, args: &NoteArgs) -> Result<CliExit, CliError> {
    let text = args.text.trim();
    if text.is_empty() {
        return Err(CliError::usage("the note is empty"));
    }
    let run = select_run(context, args.run.as_ref(), RunFilter::Any)?;
    let project = project_of(&context.assembly, &run);
    let secrets = overrides::configuration_quietly(context, project)?.secrets();
    let text = Redactor::new(secrets).redact(text);
    leave(context, &run, &Intervention::Note { text })
}

fn ask(
    context: &Context,
    run: Option<&RunId>,
    filter: RunFilter,
    request: &Intervention,
) -> Result<CliExit, CliError> {
    let run = select_run(context, run, filter)?;
    leave(context, &run, request)
}

fn leave(context: &Context, run: &RunDir, request: &Intervention) -> Result<CliExit, CliError> {
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
