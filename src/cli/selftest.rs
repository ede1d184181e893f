//! `ralph selftest`

use serde::Serialize;

use crate::id::RunId;
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
    let provider = assemble::provider(context, &config)?;
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
            None => context.ui.data(format_args!("ok      {}", check.name))?,
            Some(seen) => context.ui.data(format_args!("FAILED  {}: {seen}", check.name))?,
        }
    }
    Ok(())
}
