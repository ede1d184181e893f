//! `ralph token`

mod check;
mod get;
mod store;

use clap::Subcommand;

use super::{CliResult, Context};

pub(super) use check::{CheckTokenArgs, check};
pub(super) use get::{GetTokenArgs, get};
pub(super) use store::{StoreTokenArgs, store};

/// Store the credentials that the gateway adds to the requests of agents
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    Store(StoreTokenArgs),
    Check(CheckTokenArgs),
    Get(GetTokenArgs),
}

pub(super) async fn token(context: &Context, command: TokenCommand) -> CliResult {
    match command {
        TokenCommand::Store(args) => store(context, args).await,
        TokenCommand::Check(args) => check(context, args).await,
        TokenCommand::Get(args) => get(context, args).await,
    }
}
