//! `ralph doctor`

use std::str::FromStr;

use serde::Serialize;

use crate::agent::AGENTS;
use crate::exec::{Command, Discard};
use crate::id::{NameError, RunId};
use crate::state::Intervention;

use super::terminal::EventFormat;
use super::{CliError, CliExit, CliResult, Context};

/// Diagnose a stuck run, or (`ralph doctor env`) show what is installed and what that enables
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
    Run(RunId),
}

impl FromStr for DoctorSubject {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "env" {
            Ok(Self::Environment)
        } else {
            RunId::parse(text).map(Self::Run)
        }
    }
}

pub(super) async fn doctor(context: &Context, args: DoctorArgs) -> CliResult {
    match args.subject {
        DoctorSubject::Environment => environment(context, args.json).await,
        DoctorSubject::Run(id) => diagnose(context, &id).await,
    }
}

/// Asks a live run to consult its doctor, and diagnoses any other run here.
async fn diagnose(context: &Context, id: &RunId) -> CliResult {
    let dir = context.surroundings().runs()?.open(id)?;
    if dir.holder()?.is_some() {
        dir.inbox()
            .leave(&Intervention::Doctor, context.surroundings().now())?;
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

/// A program and what it enables.
#[derive(Debug, Serialize)]
struct InstalledTool {
    program: &'static str,
    version: Option<String>,
    enables: String,
}

const TOOLS: [(&str, &str); 6] = [
    ("git", "everything: clones, commits, hand-back"),
    ("docker", "the docker provider, images"),
    ("nix", "images from your flake"),
    ("sbx", "the docker-sandbox provider"),
    ("tart", "the tart provider (macOS virtual machines)"),
    ("litellm", "models through a LiteLLM proxy of your own"),
];

async fn environment(context: &Context, json: bool) -> CliResult {
    let mut tools = Vec::new();
    let agents = AGENTS.iter().filter_map(|agent| {
        let enables = format!("the {} agent on the local provider", agent.name);
        Some((agent.program?, enables))
    });
    let others = TOOLS.map(|(program, enables)| (program, enables.to_owned()));
    for (program, enables) in others.into_iter().chain(agents) {
        tools.push(InstalledTool {
            program,
            version: version(context, program).await,
            enables,
        });
    }
    let lines = tools.iter().map(|tool| {
        let version = tool.version.as_deref().unwrap_or("not found");
        format!("{:<14} {version:<40} {}", tool.program, tool.enables)
    });
    context
        .ui
        .report(json, &tools, lines.collect::<Vec<_>>().join("\n"))?;
    let git = tools
        .iter()
        .any(|tool| tool.program == "git" && tool.version.is_some());
    if git {
        Ok(CliExit::Success)
    } else {
        Err(CliError::runtime("git is not installed").with_hint("install git 2.39 or newer"))
    }
}

async fn version(context: &Context, program: &str) -> Option<String> {
    let command = Command::new(program)
        .arg("--version")
        .timeout(std::time::Duration::from_secs(10));
    let exit = context
        .surroundings()
        .host()
        .run(&command, &mut Discard)
        .await
        .ok()?;
    let text = exit.stdout.text();
    exit.success()
        .then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}
