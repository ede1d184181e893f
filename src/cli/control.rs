//! `ralph pause`, `rotate`, `stop`, `note`, `sign` and `profile`: requests, left in the run's inbox or, if a worker on another
//! host has the run, in the store.

use crate::id::RunId;
use crate::state::{Intervention, InterventionRequest, RunDir, Sign};
use crate::store::QueueState;

use super::select::{is_live, select_live_run, select_run};
use super::submit::open_store;
use super::{CliError, CliExit, CliResult, Context};

// Without a doc comment: that would be the help of each command that has these arguments.
#[derive(Debug, clap::Args)]
pub(super) struct LiveRunArgs {
    /// The run; the only live one by default
    run: Option<String>,
}

/// Leave a note that the next iteration reads
#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub(super) struct NoteArgs {
    /// The run; the newest one by default
    run: Option<String>,
    /// The note; `-` reads it from stdin, and `--` goes before one that begins with `-`
    text: String,
}

/// Add a sign to the guardrails of a run, which every later iteration reads
#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub(super) struct SignArgs {
    /// The run; the newest one by default
    run: Option<String>,
    /// The name of the sign
    name: String,
    /// When the agent should think of it
    #[arg(long, value_name = "TEXT")]
    trigger: String,
    /// What the agent should do then
    #[arg(long, value_name = "TEXT")]
    instruction: String,
    /// What shows that it is needed
    #[arg(long, value_name = "TEXT")]
    evidence: Option<String>,
}

/// Choose the model profile that a run goes on with
#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub(super) struct ProfileArgs {
    /// The run; the newest one by default
    run: Option<String>,
    /// The name of the profile, or of an agent that a profile has
    name: String,
    /// Only for the next iteration
    #[arg(long)]
    once: bool,
}

pub(super) async fn stop(context: &Context, args: LiveRunArgs) -> CliResult {
    if let Some(name) = &args.run
        && take_out_of_queue(context, name).await?
    {
        return Ok(CliExit::Success);
    }
    intervene(context, args, Intervention::Stop).await
}

/// Takes a run out of the queue that no process works on. `false` if it is not there.
async fn take_out_of_queue(context: &Context, name: &str) -> Result<bool, CliError> {
    let control = context.control()?;
    let here = control.look_up(name)?;
    if here.as_ref().is_some_and(is_live) {
        return Ok(false);
    }
    let known = here.map(|run| run.facts().id.clone());
    let Some(run) = known.or_else(|| RunId::parse(name).ok()) else {
        return Ok(false);
    };
    let Some(queue) = control.queue().await? else {
        return Ok(false);
    };
    let is_out = control.cancel_queued(&queue, &run).await?;
    queue.close().await;
    if is_out {
        context.ui.say(format_args!("Took run {run} out of the queue."));
        context.ui.next(format_args!(
            "`ralph submit --run {run}` queues it again, `ralph resume {run}` works on it now"
        ));
    }
    Ok(is_out)
}

pub(super) async fn intervene(context: &Context, args: LiveRunArgs, request: Intervention) -> CliResult {
    if leave_elsewhere(context, args.run.as_deref(), &request).await? {
        return Ok(CliExit::Success);
    }
    let run = select_live_run(context, args.run.as_deref())?;
    leave(context, &run, request)
}

pub(super) async fn note(context: &Context, args: NoteArgs) -> CliResult {
    let text = match args.text.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| CliError::runtime(format!("cannot read the note from stdin: {error}")))?,
        _ => args.text,
    };
    let note = Intervention::Note { text };
    // An empty note means no run.
    if let Some(problem) = note.problem() {
        return Err(CliError::usage(problem));
    }
    if leave_elsewhere(context, args.run.as_deref(), &note).await? {
        return Ok(CliExit::Success);
    }
    let run = select_run(context, args.run.as_deref())?;
    leave(context, &run, note)
}

pub(super) async fn sign(context: &Context, args: SignArgs) -> CliResult {
    let sign = Intervention::Sign(Sign {
        name: args.name,
        trigger: args.trigger,
        instruction: args.instruction,
        evidence: args.evidence,
    });
    if leave_elsewhere(context, args.run.as_deref(), &sign).await? {
        return Ok(CliExit::Success);
    }
    let run = select_run(context, args.run.as_deref())?;
    leave(context, &run, sign)
}

pub(super) async fn profile(context: &Context, args: ProfileArgs) -> CliResult {
    let run = select_run(context, args.run.as_deref())?;
    let control = context.control()?;
    let request = control.choose_profile(&run, &args.name, args.once).await?;
    said(context, &run, &request);
    Ok(CliExit::Success)
}

fn leave(context: &Context, run: &RunDir, request: Intervention) -> CliResult {
    let request = context.control()?.intervene(run, request)?;
    said(context, run, &request);
    Ok(CliExit::Success)
}

/// Leaves a request for a run that a worker on another host has. `false` if there is no such run in a queue that hosts share.
async fn leave_elsewhere(
    context: &Context,
    named: Option<&str>,
    request: &Intervention,
) -> Result<bool, CliError> {
    let surroundings = context.surroundings();
    let Some(run) = named.and_then(|name| RunId::parse(name).ok()) else {
        return Ok(false);
    };
    // Without a shared queue there is nothing to look at: these commands need no store.
    if surroundings.var("RALPH_DB_URL").is_none() {
        return Ok(false);
    }
    let here = context.control()?.look_up(run.as_str())?;
    if here.is_some_and(|dir| is_live(&dir)) {
        return Ok(false);
    }
    let store = open_store(context).await?;
    let row = store.queue_row(&run).await?;
    let Some(row) = row.filter(|row| row.state == QueueState::Running && store.is_shared()) else {
        return Ok(false);
    };
    if let Some(problem) = request.problem() {
        return Err(CliError::usage(problem));
    }
    let request = InterventionRequest::new(request.clone(), surroundings.user(), surroundings.now());
    store.leave_intervention(&run, &request).await?;
    let (what, owner) = (request.intervention.summary(), row.owner.unwrap_or_default());
    context.ui.say(format_args!(
        "Left for run {run}, which {owner} works on: {what}."
    ));
    context.ui.next(format_args!(
        "`ralph status {run}` shows what the store knows of it"
    ));
    store.close().await;
    Ok(true)
}

/// Says when a request takes effect, and what to do next.
pub(super) fn said(context: &Context, run: &RunDir, request: &InterventionRequest) {
    let (id, is_live) = (&run.facts().id, is_live(run));
    let what = request.intervention.summary();
    let text = match &request.intervention {
        Intervention::Stop => format!("Asked it to stop: run {id}."),
        Intervention::Pause => format!("Asked it to pause after this iteration: run {id}."),
        Intervention::Rotate => format!("Asked it for a fresh iteration: run {id}."),
        Intervention::AllowHosts { .. } if is_live => {
            format!("Asked run {id}, which takes it at once, except for new ports: {what}.")
        }
        _ if is_live => format!("Left for run {id}, before its next iteration: {what}."),
        _ => format!("Left for run {id}, for when it is continued: {what}."),
    };
    context.ui.say(text);
    let ends = matches!(request.intervention, Intervention::Pause | Intervention::Stop);
    context.ui.next(if is_live && !ends {
        format!("`ralph watch {id}` shows it at work")
    } else {
        format!("`ralph resume {id}` continues it")
    });
}
