//! `ralph doctor`

use std::str::FromStr;

use serde::Serialize;

use crate::assembly;
use crate::assembly::configuration::project_of;
use crate::assembly::image::prepare;
use crate::assembly::parts::{self, Assembled};
use crate::assembly::spec::Making;
use crate::clock::{Clock, SystemClock};
use crate::exec::{Command, Discard};
use crate::id::{RunId, RunIdError};
use crate::image::Rebuild;
use crate::runner;
use crate::state::Intervention;

use super::Context;
use super::error::{CliError, Exit};
use super::resume::configuration;
use super::terminal::Show;

/// Diagnose a stuck run, or (`ralph doctor env`) say what is installed and what that enables
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run, or `env`
    #[arg(value_name = "RUN|env")]
    subject: Subject,
    /// Print JSON (with `env`)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug)]
enum Subject {
    Environment,
    Run(RunId),
}

impl FromStr for Subject {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "env" {
            Ok(Self::Environment)
        } else {
            RunId::parse(text).map(Self::Run)
        }
    }
}

pub(super) async fn doctor(context: &Context, args: Args) -> Result<Exit, CliError> {
    match args.subject {
        Subject::Environment => environment(context, args.json).await,
        Subject::Run(id) => diagnose(context, &id).await,
    }
}

/// A live run is asked to consult its doctor; one that rests is diagnosed here.
async fn diagnose(context: &Context, id: &RunId) -> Result<Exit, CliError> {
    let dir = context.surroundings().runs()?.open(id)?;
    if dir.holder()?.is_some() {
        dir.inbox().leave(&Intervention::Doctor, SystemClock.now())?;
        context.ui.say(format_args!(
            "Run {id} is live: it asks its doctor after this iteration."
        ));
        return Ok(Exit::Success);
    }
    let config = configuration(context, &dir)?;
    let assembled = parts::parts(&context.assembly, &config, &dir, Show::Lines.sink(context.ui)).await?;
    let project = project_of(&context.assembly, &dir);
    let image = prepare(&context.assembly, &config, &project, Rebuild::WhenNeeded)
        .await?
        .image;
    let Assembled { parts, brokered } = &assembled;
    let making = Making {
        config: &config,
        run: &dir,
        image,
        provider: parts.provider.as_ref(),
        brokered: brokered.as_ref(),
    };
    let spec = making.spec(&context.assembly).await?;
    let diagnosis = runner::diagnose(parts, &assembly::settings(&config)?, &spec, &dir).await?;
    context.ui.data(diagnosis.trim())?;
    Ok(Exit::Success)
}

/// One program and what it is good for.
#[derive(Debug, Serialize)]
struct Tool {
    program: &'static str,
    version: Option<String>,
    enables: &'static str,
}

const TOOLS: [(&str, &str); 9] = [
    ("git", "everything: clones, commits, hand-back"),
    ("docker", "the docker provider, images"),
    ("nix", "images from your flake"),
    ("sbx", "the docker-sandbox provider"),
    ("tart", "the tart provider (macOS virtual machines)"),
    ("claude", "the claude agent on the local provider"),
    ("codex", "the codex agent on the local provider"),
    ("cursor-agent", "the cursor agent on the local provider"),
    ("litellm", "models through a LiteLLM proxy of your own"),
];

async fn environment(context: &Context, json: bool) -> Result<Exit, CliError> {
    let mut tools = Vec::new();
    for (program, enables) in TOOLS {
        tools.push(Tool {
            program,
            version: version(context, program).await,
            enables,
        });
    }
    if json {
        context.ui.json(&tools)?;
    } else {
        for tool in &tools {
            let version = tool.version.as_deref().unwrap_or("not found");
            context.ui.data(format_args!(
                "{:<14} {version:<40} {}",
                tool.program, tool.enables
            ))?;
        }
    }
    let git = tools
        .iter()
        .any(|tool| tool.program == "git" && tool.version.is_some());
    if git {
        Ok(Exit::Success)
    } else {
        Err(CliError::runtime("git is not installed").hint("install git 2.39 or newer"))
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
