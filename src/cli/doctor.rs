//! `ralph doctor`

use std::convert::Infallible;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::agent::AGENTS;
use crate::engine::{Engine, EngineError, EngineKind};
use crate::exec::{Command, Discard};
use crate::state::Intervention;
use crate::text::error_chain;

use super::terminal::EventFormat;
use super::{CliError, CliExit, CliResult, Context};

/// How long a program or an engine may take to report its version.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

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

/// A program, or the container engine, and what it enables.
#[derive(Debug, Serialize)]
struct InstalledTool {
    program: &'static str,
    version: Option<String>,
    /// Why it cannot be used, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    enables: String,
}

const TOOLS: [(&str, &str); 6] = [
    ("git", "everything: clones, commits, hand-back"),
    ("docker", "image builds with BuildKit"),
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
            problem: None,
            enables,
        });
    }
    tools.insert(1, engine(context).await);
    let lines = tools.iter().map(|tool| {
        let found = tool.version.as_deref().or(tool.problem.as_deref());
        let found = found.unwrap_or("not found");
        format!("{:<14} {found:<40} {}", tool.program, tool.enables)
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

async fn engine(context: &Context) -> InstalledTool {
    let (version, problem) = match ask_engine(context).await {
        Ok(version) => (Some(version), None),
        Err(problem) => (None, Some(problem)),
    };
    InstalledTool {
        program: "engine",
        version,
        problem,
        enables: "the docker provider, images".to_owned(),
    }
}

/// Asks the container engine for its name, version and address; or says why that failed.
pub(super) async fn ask_engine(context: &Context) -> Result<String, String> {
    let surroundings = context.surroundings();
    let ask = async {
        let engine = Engine::connect(&surroundings.engine(), &surroundings.host()).await?;
        let info = engine.info().await?;
        let name = match info.kind {
            EngineKind::Docker => "Docker",
            EngineKind::Podman => "podman",
        };
        Ok(format!("{name} {} at {}", info.version, engine.endpoint()))
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, ask).await {
        Ok(answer) => answer.map_err(|error: EngineError| error_chain(&error)),
        Err(_) => Err(format!(
            "the container engine did not answer within {} s",
            ANSWER_TIMEOUT.as_secs()
        )),
    }
}

async fn version(context: &Context, program: &str) -> Option<String> {
    let command = Command::new(program).arg("--version").timeout(ANSWER_TIMEOUT);
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
