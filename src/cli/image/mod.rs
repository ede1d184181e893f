//! `ralph image`

mod build;
mod check;
mod lock;
mod progress;
mod prune;
mod pull;
mod push;
mod scene;
mod status;
mod target;
mod wanted;

use clap::Subcommand;

use crate::image::Rebuild;

use super::Context;
use super::error::{CliError, CliExit};
pub(super) use progress::observer;

/// Build, share, show and prune the images that sandboxes start from
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Build(build::Args),
    Pull(pull::Args),
    Push(push::Args),
    Status(status::Args),
    Prune(prune::Args),
}

pub(super) async fn image(context: &Context, args: Args) -> Result<CliExit, CliError> {
    match args.what {
        What::Build(args) => build::build(context, args).await,
        What::Pull(args) => pull::pull(context, args).await,
        What::Push(args) => push::push(context, args).await,
        What::Status(args) => status::status(context, args).await,
        What::Prune(args) => prune::prune(context, args).await,
    }
}

/// Whether the image is built anew, for every command that starts from one.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct RebuildFlag {
    /// Pull the base, and build the image and the project's layer anew
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
