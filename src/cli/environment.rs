//! `ralph doctor env`

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::agent::AGENTS;
use crate::assembly::readiness::{self, FirstRun, HostReadiness, Readiness};
use crate::engine::{Engine, EngineError, EngineInfo, EngineKind};
use crate::exec::{Command, Discard};
use crate::text::error_chain;

use super::{CliError, CliExit, CliResult, Context, ErrorTopic, activity};

/// How long a program or an engine may take to report its version.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The JSON output.
#[derive(Serialize, JsonSchema)]
pub(super) struct EnvironmentReport {
    tools: Vec<InstalledTool>,
    #[serde(flatten)]
    readiness: HostReadiness,
}

/// A program, or the container engine, and what it enables.
#[derive(Debug, Serialize, JsonSchema)]
struct InstalledTool {
    program: &'static str,
    version: Option<String>,
    /// Why it cannot be used, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    enables: String,
    /// The command or the page that installs it, if it was not found.
    #[serde(skip_serializing_if = "Option::is_none")]
    install: Option<&'static str>,
}

/// Programs, what each enables, and how to install it.
const TOOLS: [(&str, &str, &str); 6] = [
    (
        "git",
        "everything: clones, commits, hand-back",
        "https://git-scm.com/downloads",
    ),
    (
        "docker",
        "image builds with BuildKit",
        "https://docs.docker.com/engine/install",
    ),
    ("nix", "images from your flake", "https://nixos.org/download"),
    (
        "sbx",
        "the docker-sandbox provider",
        "https://docs.docker.com/ai/sandboxes",
    ),
    (
        "tart",
        "the tart provider (macOS virtual machines)",
        "brew install cirruslabs/cli/tart",
    ),
    (
        "litellm",
        "models through a LiteLLM proxy of your own",
        "pip install 'litellm[proxy]'",
    ),
];

pub(super) async fn environment(context: &Context, json: bool) -> CliResult {
    activity::begin("looking at programs, credentials and providers");
    let tools = tools(context).await;
    let has_git = tools
        .iter()
        .any(|tool| tool.program == "git" && tool.version.is_some());
    let given = context.global.given(Vec::new())?;
    let readiness = readiness::look(&context.assembly, &given).await?;
    activity::end();
    let report = EnvironmentReport { tools, readiness };
    context.ui.report(json, &report, lines(&report).join("\n"))?;
    if has_git {
        Ok(CliExit::Success)
    } else {
        Err(CliError::runtime("git is not installed")
            .with_topic(ErrorTopic::Repository)
            .with_hint("install git 2.39 or newer"))
    }
}

async fn tools(context: &Context) -> Vec<InstalledTool> {
    let mut tools = Vec::new();
    let agents = AGENTS.iter().filter_map(|agent| {
        let enables = format!("the {} agent on the local provider", agent.name);
        Some((agent.program?, enables, agent.install?))
    });
    let others = TOOLS.map(|(program, enables, install)| (program, enables.to_owned(), install));
    for (program, enables, install) in others.into_iter().chain(agents) {
        let version = version(context, program).await;
        tools.push(InstalledTool {
            program,
            install: version.is_none().then_some(install),
            version,
            problem: None,
            enables,
        });
    }
    tools.insert(1, engine(context).await);
    tools
}

fn lines(report: &EnvironmentReport) -> Vec<String> {
    let mut lines: Vec<String> = report.tools.iter().map(tool_line).collect();
    let readiness = &report.readiness;
    for (title, rows) in [
        ("agents", &readiness.agents),
        ("keys", &readiness.keys),
        ("providers", &readiness.providers),
    ] {
        lines.push(format!("\n{title}:"));
        lines.extend(rows.iter().map(readiness_line));
    }
    lines.push(first_run_line(&readiness.first_run));
    lines
}

fn tool_line(tool: &InstalledTool) -> String {
    let found = tool.version.as_deref().unwrap_or("not found");
    let install = tool
        .install
        .map_or(String::new(), |install| format!(" (install: {install})"));
    let problem = tool
        .problem
        .as_ref()
        .map_or(String::new(), |problem| format!("\n  {problem}"));
    format!(
        "{:<14} {found:<40} {}{install}{problem}",
        tool.program, tool.enables
    )
}

fn readiness_line(row: &Readiness) -> String {
    let next = row
        .next
        .as_ref()
        .map_or(String::new(), |next| format!("; {next}"));
    format!("  {:<26} {}{next}", row.name, row.detail)
}

fn first_run_line(run: &FirstRun) -> String {
    let (agent, model, sandbox) = (run.agent, &run.model, run.sandbox.name());
    let verdict = match &run.problem {
        None => ". Nothing is known to be missing; `ralph selftest` tries it all.".to_owned(),
        Some(problem) => format!(", and would be refused: {problem}"),
    };
    let next = run
        .next
        .as_ref()
        .map_or(String::new(), |next| format!("\nnext: {next}"));
    format!(
        "\nA first `ralph run` here would use the agent `{agent}` with {model} in the sandbox `{sandbox}`{verdict}{next}"
    )
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
        install: None,
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
        let runtimes = match other_runtimes(&info).join(", ") {
            none if none.is_empty() => none,
            others => format!("; other runtimes: {others} (sandbox.docker.runtime)"),
        };
        Ok(format!(
            "{name} {} at {}{runtimes}",
            info.version,
            engine.endpoint()
        ))
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, ask).await {
        Ok(answer) => answer.map_err(|error: EngineError| error_chain(&error)),
        Err(_) => Err(format!(
            "the container engine did not answer within {} s",
            ANSWER_TIMEOUT.as_secs()
        )),
    }
}

/// The OCI runtimes that sandboxes can use instead of the usual one. Podman chooses none by container.
fn other_runtimes(info: &EngineInfo) -> Vec<&str> {
    let is_usual = |name: &str| name == "runc" || name.starts_with("io.containerd.");
    let names = info.runtimes.iter().map(String::as_str);
    let others = names.filter(|name| info.kind == EngineKind::Docker && !is_usual(name));
    others.collect()
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
