//! `ralph pause`, `rotate`, `stop`, `note`: requests to a run, left in its directory.

use crate::assembly::configuration::project_of;
use crate::clock::{Clock, SystemClock};
use crate::id::RunId;
use crate::secret::Redactor;
use crate::state::{Intervention, RunDir};

use super::Context;
use super::error::{CliError, Exit};
use super::overrides;
use super::select::{Which, select};

/// Pause a run after its current iteration
#[derive(Debug, clap::Args)]
pub(super) struct PauseArgs {
    /// The run; the only live one by default
    run: Option<RunId>,
}

/// End a run's current iteration and begin a fresh one
#[derive(Debug, clap::Args)]
pub(super) struct RotateArgs {
    /// The run; the only live one by default
    run: Option<RunId>,
}

/// Stop a run now; `ralph resume` goes on from its last iteration
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

pub(super) fn pause(context: &Context, args: &PauseArgs) -> Result<Exit, CliError> {
    ask(context, args.run.as_ref(), Which::Live, &Intervention::Pause)
}

pub(super) fn rotate(context: &Context, args: &RotateArgs) -> Result<Exit, CliError> {
    ask(context, args.run.as_ref(), Which::Live, &Intervention::Rotate)
}

pub(super) fn stop(context: &Context, args: &StopArgs) -> Result<Exit, CliError> {
    ask(context, args.run.as_ref(), Which::Live, &Intervention::Stop)
}

pub(super) fn note(context: &Context, args: &NoteArgs) -> Result<Exit, CliError> {
    let text = args.text.trim();
    if text.is_empty() {
        return Err(CliError::usage("the note is empty"));
    }
    let run = select(&context.surroundings().runs()?, args.run.as_ref(), Which::Any)?;
    let project = project_of(&context.assembly, &run);
    let secrets = overrides::configuration_quietly(context, project)?.secrets();
    let text = Redactor::new(secrets).redact(text);
    leave(context, &run, &Intervention::Note { text })
}

fn ask(
    context: &Context,
    run: Option<&RunId>,
    which: Which,
    request: &Intervention,
) -> Result<Exit, CliError> {
    let run = select(&context.surroundings().runs()?, run, which)?;
    leave(context, &run, request)
}

fn leave(context: &Context, run: &RunDir, request: &Intervention) -> Result<Exit, CliError> {
    run.inbox().leave(request, SystemClock.now())?;
    let what = match request {
        Intervention::Stop => "Asked it to stop",
        Intervention::Pause => "Asked it to pause after this iteration",
        Intervention::Rotate => "Asked it for a fresh iteration",
        Intervention::Note { .. } => "Left a note",
        Intervention::Doctor => "Asked for a diagnosis",
    };
    context.ui.say(format_args!("{what}: run {}.", run.facts().id));
    Ok(Exit::Success)
}
