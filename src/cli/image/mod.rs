//! `ralph image`

mod build;
mod check;
mod progress;
mod provider_images;
mod prune;
mod pull;
mod push;
mod selection;
mod status;

use clap::Subcommand;

use crate::image::Rebuild;

use super::signals::Signals;
use super::{CliResult, Context, activity};
pub(super) use build::{BuildReport, PlanReport};
pub(super) use check::CheckReport;
pub(super) use progress::observer;
pub(super) use provider_images::{ProviderBuild, ProviderPruneRow, ProviderStatus};
pub(super) use prune::PruneRow;
pub(super) use pull::PullReport;
pub(super) use push::PushReport;
pub(super) use status::StatusReport;

/// Build, share, list and prune the images that sandboxes start from
#[derive(Debug, Subcommand)]
pub(super) enum ImageCommand {
    Build(build::ImageBuildArgs),
    Pull(pull::ImagePullArgs),
    Push(push::ImagePushArgs),
    Status(status::ImageStatusArgs),
    Prune(prune::ImagePruneArgs),
}

/// What is left of a build, and of a transfer, that a signal ended.
const BUILD_INTERRUPTED: &str = "complete images and build steps are kept, and the same command goes on from them; an incomplete image has no tag";
const TRANSFER_INTERRUPTED: &str = "an incomplete image has no tag; run the same command again";

pub(super) async fn image(context: &Context, command: ImageCommand) -> CliResult {
    let mut signals = Signals::watch(&context.surroundings().host()).await?;
    activity::begin("looking at the image and what it is built from");
    match command {
        ImageCommand::Build(args) => {
            let build = Box::pin(build::build(context, args));
            signals.or_interrupted(BUILD_INTERRUPTED, build).await
        }
        ImageCommand::Pull(args) => {
            let pull = Box::pin(pull::pull(context, args));
            signals.or_interrupted(TRANSFER_INTERRUPTED, pull).await
        }
        ImageCommand::Push(args) => {
            let push = Box::pin(push::push(context, args));
            signals.or_interrupted(TRANSFER_INTERRUPTED, push).await
        }
        ImageCommand::Status(args) => status::status(context, args).await,
        ImageCommand::Prune(args) => prune::prune(context, args).await,
    }
}

/// `--rebuild`, for every command that starts from an image.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct RebuildFlag {
    /// Pull the base, and rebuild the image and the project's layer
    #[arg(long)]
    rebuild: bool,
}

impl From<RebuildFlag> for Rebuild {
    fn from(flag: RebuildFlag) -> Self {
        if flag.rebuild {
            Self::Always
        } else {
            Self::WhenNeeded
        }
    }
}
