//! `ralph image pull`

use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::EngineImageReference;
use crate::image::{ImageBuilder, ImageLock, RegistryImage};

use super::progress::observer;
use super::selection::{ImageFlags, ImageSetup, RemoteImage};
use crate::cli::{CliError, CliExit, CliResult, Context};

/// Pull the image: the one that `sandbox.image` names, or the planned one from `sandbox.registry`
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ImagePullArgs {
    #[command(flatten)]
    image: ImageFlags,
    /// Pull it even if it exists and `sandbox.use_local_image` is set
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON output.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct PullReport {
    image: String,
    remote: String,
    pulled: bool,
}

pub(super) async fn pull(context: &Context, args: ImagePullArgs) -> CliResult {
    let setup = args.image.setup(context)?;
    let remote = setup.remote()?;
    let builder = setup.connect().await?;
    let may_skip = setup.config.settings.sandbox.use_local_image && !args.force;
    let report = match remote {
        RemoteImage::Named(name) => pull_named(context, &builder, &name, may_skip).await?,
        RemoteImage::Planned { registry } => {
            pull_planned(context, &setup, &builder, registry, may_skip).await?
        }
    };
    if !report.pulled {
        context.ui.say(format_args!(
            "not pulled: {} exists and `sandbox.use_local_image` is set (`--force` pulls it anyway)",
            report.image
        ));
    }
    context.ui.report(args.json, &report, &report.image)?;
    context.ui.next(args.image.next_step());
    Ok(CliExit::Success)
}

async fn pull_named(
    context: &Context,
    builder: &ImageBuilder,
    name: &EngineImageReference,
    may_skip: bool,
) -> Result<PullReport, CliError> {
    let text = name.to_string();
    let skips = may_skip && builder.engine.image(&text).await?.is_some();
    if !skips {
        let mut observer = observer(context.ui);
        builder.engine.pull(name, None, observer.as_mut()).await?;
    }
    Ok(PullReport {
        image: text.clone(),
        remote: text,
        pulled: !skips,
    })
}

async fn pull_planned(
    context: &Context,
    setup: &ImageSetup<'_>,
    builder: &ImageBuilder,
    registry: &str,
    may_skip: bool,
) -> Result<PullReport, CliError> {
    let recipe = setup.read(Some(builder)).await?;
    let mut observer = observer(context.ui);
    let (_, plan) = builder.pull_and_plan(&recipe, observer.as_mut()).await?;
    let platform = recipe.spec.platform;
    let lock = ImageLock::read(&setup.request.project)?;
    let locked = lock.as_ref().and_then(|lock| lock.find(&plan.image, platform));
    let image = RegistryImage {
        recorded: locked.map(|locked| locked.digest),
        ..RegistryImage::new(registry, plan.image, platform)?
    };
    let skips = may_skip && builder.find(&image.image).await?.is_some();
    if !skips {
        image.pull(builder, observer.as_mut()).await?;
    }
    Ok(PullReport {
        image: image.image.tag.to_string(),
        remote: image.remote.to_string(),
        pulled: !skips,
    })
}
