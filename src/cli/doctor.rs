//! `ralph doctor`

use std::convert::Infallible;
use std::str::FromStr;

use crate::state::Intervention;

use super::environment::environment;
use super::terminal::EventFormat;
use super::{CliExit, CliResult, Context};

/// Diagnose a stuck run, or (`ralph doctor env`) show what is installed, and what a first run would use
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// A run, or `env`
    #[arg(value_name = "RUN|env")]
    subject: DoctorSubject,
    /// Print JSON (with `env`)
    #[arg(long)]
    json: bool,
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
    match args.subject {
        DoctorSubject::Environment => environment(context, args.json).await,
        DoctorSubject::Run(name) => diagnose(context, &name).await,
    }
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
        return Ok(CliExit::Success);
    }
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
    Ok(CliExit::Success)
}
