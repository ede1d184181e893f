//! `ralph selftest`

mod checks;
mod escapes;
mod hand_back;

use std::path::Path;
use std::time::Duration;

use super::{
    CliError, CliResult, Context, ErrorTopic, activity, agent_help, choice_options, configuration, flags,
};
use crate::assembly::configuration::project_dir;
use crate::assembly::image::PreparedImage;
use crate::assembly::spec::SandboxUse;
use crate::assembly::{image, provider, spec};
use crate::config::Config;
use crate::id::RunId;
use crate::sandbox::{Reuse, SandboxSpec};

use super::image::RebuildFlag;
use super::signals::Signals;
use checks::Selftest;
pub(super) use checks::SelftestReport;

/// The longest time that attacks are varied: a week.
const MAX_HOURS: f64 = 168.0;

/// Build the image, create a sandbox as a run would, check that it does what a run needs, and hold one tiny agent
/// session in it
#[derive(Debug, clap::Args)]
pub(super) struct SelftestArgs {
    /// The provider: docker, docker-sandbox, tart, daytona or local
    #[arg(long = "type", value_name = "PROVIDER")]
    provider: Option<String>,
    #[arg(long, value_name = "NAME", help = agent_help("The agent"))]
    agent: Option<String>,
    #[command(flatten)]
    image: RebuildFlag,
    /// Attack the sandbox from inside instead, and show which attacks are blocked
    #[arg(long)]
    escapes: bool,
    /// With --escapes: vary the attacks for this many hours, at most 168 (0.1 is six minutes)
    #[arg(long, value_name = "HOURS", requires = "escapes", value_parser = parse_hours)]
    hours: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn selftest(context: &Context, args: SelftestArgs) -> CliResult {
    let options = choice_options(args.provider.as_deref(), args.agent.as_deref());
    let given = flags([
        ("--type", "sandbox.type", args.provider),
        ("--agent", "agent.name", args.agent),
    ]);
    let config = configuration(context, given)?;
    let project = project_dir(context.surroundings().dir());
    if args.escapes {
        // The escape suite shows what the provider cannot enforce, so the policy is not checked first.
        let provider = provider::create_provider(&context.assembly, &config)?;
        provider.check().await?;
        let prepared = image::prepare(&context.assembly, &config, &project, args.image.into()).await?;
        let spec = sandbox_spec(context, &config, &project, RunId::random(), prepared).await?;
        activity::begin("attacking the sandbox from inside");
        return escapes::attack(context, provider.as_ref(), spec, args.hours, args.json).await;
    }
    let mut signals = Signals::watch(&context.surroundings().host()).await?;
    activity::begin("looking at the provider and the credentials");
    let mut test = Selftest::open(context, &config, &project, args.json).await?;
    let interrupted = tokio::select! {
        () = test.run(args.image) => None,
        () = signals.next() => Some(CliError::runtime("interrupted").with_topic(ErrorTopic::Interrupted)),
    };
    let hint = match test.remove_sandbox().await {
        Some(()) => "the sandbox was removed",
        None => {
            "the sandbox could not be removed: `ralph sandbox ls` lists it, `ralph sandbox rm` removes it"
        }
    };
    match interrupted {
        Some(error) => Err(error.with_hint(hint)),
        None => test.conclude(&options),
    }
}

fn parse_hours(text: &str) -> Result<Duration, String> {
    let hours: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if hours > 0.0 && hours <= MAX_HOURS {
        Ok(Duration::from_secs_f64(hours * 3600.0))
    } else {
        Err(format!("it must be more than 0 and at most {MAX_HOURS}"))
    }
}

/// A sandbox as a run of this project would get it.
async fn sandbox_spec(
    context: &Context,
    config: &Config,
    project: &Path,
    run: RunId,
    image: PreparedImage,
) -> Result<SandboxSpec, CliError> {
    let used = SandboxUse {
        branch: format!("selftest/{run}"),
        task: format!("selftest {run}"),
        project: Some(project.to_owned()),
        image,
        reuse: Reuse::Never,
        run,
    };
    spec::sandbox_spec(&context.assembly, config, used).await
}
