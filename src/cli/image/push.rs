//! `ralph image push`

use schemars::JsonSchema;
use serde::Serialize;

use crate::image::RegistryImage;

use super::progress::observer;
use super::selection::{ImageFlags, RemoteImage};
use crate::cli::{CliExit, CliResult, Context};

/// Push the image: the one that `sandbox.image` names, or the planned one to `sandbox.registry`
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ImagePushArgs {
    #[command(flatten)]
    image: ImageFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON output.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct PushReport {
    image: String,
    remote: String,
}

pub(super) async fn push(context: &Context, args: ImagePushArgs) -> CliResult {
    let setup = args.image.setup(context)?;
    let remote = setup.remote()?;
    let builder = setup.connect().await?;
    let mut observer = observer(context.ui);
    let (image, remote) = match remote {
        RemoteImage::Named(name) => {
            builder.engine.push(&name, observer.as_mut()).await?;
            (name.to_string(), name.to_string())
        }
        RemoteImage::Planned { registry } => {
            let recipe = setup.read(Some(&builder)).await?;
            let plan = builder.plan(&recipe).await?;
            let image = RegistryImage::new(registry, plan.image, recipe.spec.platform)?;
            image.push(&builder, observer.as_mut()).await?;
            (image.image.tag.to_string(), image.remote.to_string())
        }
    };
    let report = PushReport { image, remote };
    context.ui.report(args.json, &report, &report.remote)?;
    context
        .ui
        .next("on another host with this configuration, `ralph image pull` takes it");
    Ok(CliExit::Success)
}
