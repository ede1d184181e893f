//! `ralph selftest`

use serde::Serialize;

use crate::id::RunId;
use crate::sandbox::escapes::{EscapesError, Matrix, Verdict, escapes};
use crate::sandbox::selftest::{Check, selftest};
use crate::sandbox::{Purpose, Reuse, SandboxSpec};

use super::assemble::{self, Given};
use super::error::{CliError, Exit};
use super::image::{self, RebuildFlag};
use super::{Context, spec};

/// Make a sandbox as a run would, and try out whether it does what a run needs
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The provider: docker, docker-sandbox, tart, daytona or local
    #[arg(long = "type", value_name = "PROVIDER")]
    provider: Option<String>,
    /// The agent: claude, codex, cursor, actions or custom
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    #[command(flatten)]
    image: RebuildFlag,
    /// Attack the sandbox from inside in place of that, and tell what holds
    #[arg(long)]
    escapes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn try_out(context: &Context, args: Args) -> Result<Exit, CliError> {
    let given = Given::of_flags([
        ("--type", "sandbox.type", args.provider),
        ("--agent", "agent.name", args.agent),
    ]);
    let config = assemble::configuration(context, None, &given)?;
    let project = assemble::project_dir(&context.surroundings.cwd);
    let provider = if args.escapes {
        // What it cannot enforce is what is asked.
        assemble::connected(context, &config)?
    } else {
        assemble::provider(context, &config)?
    };
    provider.check().await?;
    let run = RunId::random();
    let spec = SandboxSpec {
        purpose: Purpose {
            agent: config.settings.agent.name.name().to_owned(),
            branch: format!("selftest/{run}"),
            task: format!("selftest {run}"),
        },
        image: image::for_sandbox(context, &config, &project, args.image).await?,
        resources: config.resources(),
        network: spec::network_policy(&config, Some(&project)),
        egress: spec::egress(&config)?,
        completion_grace: config.settings.timers.completion_grace,
        reuse: Reuse::Never,
        ..SandboxSpec::unrestricted(run.clone())
    };
    if args.escapes {
        let matrix = escapes(provider.as_ref(), spec).await?;
        show_matrix(context, &matrix, args.json)?;
        return conclude(&matrix);
    }
    let sandbox = provider.create(&spec).await?;
    let checks = selftest(sandbox.as_ref()).await;
    sandbox.close().await?;
    // `local` keeps its sandboxes where runs are; this was none.
    let _ = std::fs::remove_dir(context.surroundings.runs()?.dir().join(run.as_str()));
    let report = Report {
        provider: provider.name(),
        image: spec.image,
        checks,
    };
    show(context, &report, args.json)?;
    report.conclude()
}

/// What was found, for programs.
#[derive(Serialize)]
struct Report {
    provider: &'static str,
    image: Option<String>,
    checks: Vec<Check>,
}

impl Report {
    fn conclude(&self) -> Result<Exit, CliError> {
        let failed = self.checks.iter().filter(|check| check.seen.is_some()).count();
        match failed {
            0 => Ok(Exit::Success),
            _ => Err(CliError::runtime(format!(
                "{failed} of {} checks failed with the `{}` provider",
                self.checks.len(),
                self.provider
            ))
            .hint("`ralph doctor env` says what is installed here")),
        }
    }
}

fn show(context: &Context, report: &Report, json: bool) -> Result<(), CliError> {
    if json {
        return context.ui.json(report);
    }
    for check in &report.checks {
        match &check.seen {
            None => context.ui.data(format_args!("PASS  {}", check.name))?,
            Some(seen) => context.ui.data(format_args!("FAIL  {}: {seen}", check.name))?,
        }
    }
    Ok(())
}

fn show_matrix(context: &Context, matrix: &Matrix, json: bool) -> Result<(), CliError> {
    if json {
        return context.ui.json(matrix);
    }
    for tried in &matrix.cases {
        let (verdict, class, name) = (tried.verdict, tried.class, &tried.name);
        let told = match verdict {
            Verdict::Enforced => format!("seen: {}", tried.seen),
            Verdict::Open | Verdict::NotEnforceable => format!("seen: {}; {}", tried.seen, tried.reason),
        };
        context
            .ui
            .data(format_args!("{verdict:<15}  {class:<12}  {name} ({told})"))?;
    }
    let counts = [Verdict::Enforced, Verdict::Open, Verdict::NotEnforceable]
        .map(|verdict| format!("{} {verdict}", matrix.count(verdict)));
    context.ui.say(counts.join(", "));
    Ok(())
}

fn conclude(matrix: &Matrix) -> Result<Exit, CliError> {
    match matrix.count(Verdict::Open) {
        0 => Ok(Exit::Success),
        open => Err(CliError::runtime(format!(
            "{open} of {} attacks are not held by the `{}` provider",
            matrix.cases.len(),
            matrix.provider
        ))
        .hint("run nothing that you do not trust in such a sandbox, and please report what was seen")),
    }
}

impl From<EscapesError> for CliError {
    fn from(error: EscapesError) -> Self {
        Self::of(Exit::Failure, &error).maybe_hint(error.hint())
    }
}
