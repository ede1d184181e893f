//! `ralph selftest`

mod attack;
mod trial;

use std::path::Path;

use crate::assembly::configuration::project_dir;
use crate::assembly::{image, provider, spec};
use crate::config::Config;
use crate::id::RunId;
use crate::sandbox::{Purpose, Reuse, SandboxSpec};

use super::Context;
use super::error::{CliError, Exit};
use super::image::RebuildFlag;
use super::overrides::{configuration, flags};
use super::signals::Signals;
use trial::Trial;

/// Build the image, make a sandbox as a run would, try out whether it does what a run needs, and let the agent have one
/// tiny round in it
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

/// How things are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Lines,
    Json,
}

pub(super) async fn try_out(context: &Context, args: Args) -> Result<Exit, CliError> {
    let given = flags([
        ("--type", "sandbox.type", args.provider),
        ("--agent", "agent.name", args.agent),
    ]);
    let config = configuration(context, None, given)?;
    let project = project_dir(&context.surroundings().cwd);
    let form = if args.json { Form::Json } else { Form::Lines };
    if args.escapes {
        // What it cannot enforce is what is asked.
        let provider = provider::connected(&context.assembly, &config)?;
        provider.check().await?;
        let prepared = image::prepare(&context.assembly, &config, &project, args.image.into()).await?;
        let spec = sandbox_spec(context, &config, &project, prepared.image).await?;
        return attack::attack(context, provider.as_ref(), spec, form).await;
    }
    let mut signals = Signals::watch()?;
    let mut trial = Trial::open(context, &config, &project, form).await?;
    let interrupted = tokio::select! {
        () = trial.carry_out(args.image) => None,
        () = signals.next() => Some(CliError::runtime("interrupted").hint("what was made is removed")),
    };
    trial.clean_up().await;
    match interrupted {
        Some(error) => Err(error),
        None => trial.conclude(),
    }
}

/// What the sandbox is made from.
async fn sandbox_spec(
    context: &Context,
    config: &Config,
    project: &Path,
    image: Option<String>,
) -> Result<SandboxSpec, CliError> {
    let run = RunId::random();
    Ok(SandboxSpec {
        purpose: Purpose {
            agent: config.settings.agent.name.name().to_owned(),
            branch: format!("selftest/{run}"),
            task: format!("selftest {run}"),
        },
        mounts: config.mounts(),
        resources: config.resources(),
        network: spec::network_policy(&context.assembly, config, Some(project), image.as_deref()).await?,
        image,
        egress: spec::egress(config)?,
        completion_grace: config.settings.timers.completion_grace,
        reuse: Reuse::Never,
        ..SandboxSpec::unrestricted(run)
    })
}
