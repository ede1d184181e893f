//! `ralph image`

mod build;
mod check;
mod progress;
mod prune;
mod pull;
mod push;
mod selection;
mod status;

use clap::Subcommand;

use crate::image::Rebuild;

use super::signals::or_interrupted;
use super::{CliResult, Context};
pub(super) use progress::observer;

/// Build, share, list and prune the images that sandboxes start from
#[derive(Debug, Subcommand)]
pub(super) enum ImageCommand {
    Build(build::ImageBuildArgs),
    Pull(pull::ImagePullArgs),
    Push(push::ImagePushArgs),
    Status(status::ImageStatusArgs),
    Prune(prune::ImagePruneArgs),
}

pub(super) async fn image(context: &Context, command: ImageCommand) -> CliResult {
    match command {
        ImageCommand::Build(args) => or_interrupted(Box::pin(build::build(context, args))).await,
        ImageCommand::Pull(args) => pull::pull(context, args).await,
        ImageCommand::Push(args) => push::push(context, args).await,
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
