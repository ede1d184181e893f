//! `ralph token`

mod check;
mod get;
mod store;

use clap::Subcommand;

use super::Context;
use super::error::{CliError, Exit};

pub(super) use check::{CheckArgs, check};
pub(super) use get::{GetArgs, get};
pub(super) use store::{StoreArgs, store};

/// Keep the credentials that the gateway adds to what agents ask of models
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Store(StoreArgs),
    Check(CheckArgs),
    Get(GetArgs),
}

pub(super) async fn token(context: &Context, args: Args) -> Result<Exit, CliError> {
    match args.what {
        What::Store(args) => store(context, args).await,
        What::Check(args) => check(context, args).await,
        What::Get(args) => get(context, args).await,
    }
}
