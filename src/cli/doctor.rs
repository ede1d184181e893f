//! `ralph doctor`

use std::convert::Infallible;
use std::str::FromStr;

use crate::state::{DiagnosisParts, Intervention};

use super::control::said;
use super::environment::environment;
use super::select::is_live;
use super::terminal::EventFormat;
use super::{CliError, CliExit, CliResult, Context, activity};

/// Diagnose a stuck run, or (`ralph doctor env`) show what is installed, and what a first run would use
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// A run, or `env`
    #[arg(value_name = "RUN|env")]
    subject: DoctorSubject,
    /// Apply the newest diagnosis of the run: all of it, or the parts that are named
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    parts: DiagnosisPartArgs,
    /// Print JSON (with `env`)
    #[arg(long)]
    json: bool,
}

// Without a doc comment: that would be the help of the command that has these arguments.
#[derive(Debug, clap::Args)]
struct DiagnosisPartArgs {
    /// With `--apply`: the signs
    #[arg(long, requires = "apply")]
    signs: bool,
    /// With `--apply`: the edits of the task
    #[arg(long, requires = "apply")]
    spec: bool,
    /// With `--apply`: the model profile
    #[arg(long, requires = "apply")]
    profile: bool,
}

#[derive(Clone, Debug)]
enum DoctorSubject {
    Environment,
    Run(String),
}

impl FromStr for DoctorSubject {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "env" {
            Ok(Self::Environment)
        } else {
            Ok(Self::Run(text.to_owned()))
        }
    }
}

pub(super) async fn doctor(context: &Context, args: DoctorArgs) -> CliResult {
    let DiagnosisPartArgs { signs, spec, profile } = args.parts;
    let named = if signs || spec || profile {
        DiagnosisParts { signs, spec, profile }
    } else {
        DiagnosisParts::ALL
    };
    let parts = args.apply.then_some(named);
    match (args.subject, parts) {
        (DoctorSubject::Environment, Some(_)) => Err(CliError::usage("`--apply` needs a run")),
        (DoctorSubject::Environment, None) => environment(context, args.json).await,
        (DoctorSubject::Run(_), _) if args.json => Err(CliError::usage("`--json` is for `ralph doctor env`")
            .with_hint("`ralph status RUN --json` prints a run as JSON")),
        (DoctorSubject::Run(name), Some(parts)) => apply(context, &name, parts).await,
        (DoctorSubject::Run(name), None) => Box::pin(diagnose(context, &name)).await,
    }
}

/// Applies what the newest diagnosis of a run proposes.
async fn apply(context: &Context, name: &str, parts: DiagnosisParts) -> CliResult {
    let control = context.control()?;
    let run = control.find(name)?;
    let (diagnosis, requests) = control.apply_diagnosis(&run, parts).await?;
    for request in &requests {
        said(context, &run, request);
    }
    let id = &run.facts().id;
    if requests.is_empty() {
        context.ui.say(format_args!(
            "Nothing of the newest diagnosis of run {id} is left to apply."
        ));
    } else {
        context
            .ui
            .say(format_args!("From this diagnosis:\n{}", diagnosis.trim()));
    }
    context.ui.next(if is_live(&run) {
        format!("`ralph watch {id}` shows it at work")
    } else {
        format!("`ralph resume {id}` continues it")
    });
    Ok(CliExit::Success)
}

/// Asks a live run to consult its doctor, and diagnoses any other run here.
async fn diagnose(context: &Context, name: &str) -> CliResult {
    let dir = context.control()?.find(name)?;
    let id = &dir.facts().id;
    if dir.holder()?.is_some() {
        context.control()?.intervene(&dir, Intervention::Doctor)?;
        context.ui.say(format_args!(
            "Run {id} is live: it consults its doctor after this iteration."
        ));
        context
            .ui
            .next(format_args!("`ralph watch {id}` shows it at work"));
        return Ok(CliExit::Success);
    }
    activity::begin("asking the doctor");
    let run = context
        .builder(Vec::new())?
        .resume(id.clone())
        .sink(EventFormat::Text.sink(context.ui))
        .build()
        .await?
        .start()
        .await?;
    let diagnosis = run.diagnose().await?;
    context.ui.data(diagnosis.trim())?;
    context.ui.next(format_args!(
        "`ralph doctor {id} --apply` does what it proposes; `ralph resume {id}` continues the run"
    ));
    Ok(CliExit::Success)
}
