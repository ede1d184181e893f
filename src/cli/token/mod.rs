//! `ralph token`

mod check;
mod get;
mod store;

use clap::Subcommand;

use crate::credential::{CredentialKind, LoginError};

use super::{CliError, CliResult, Context};

pub(super) use check::{CheckTokenArgs, TokenStatus, check};
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

/// The command that stores a credential of this kind.
pub(super) fn store_command(kind: CredentialKind) -> String {
    format!("ralph token store{}", options(kind))
}

/// The options that name a credential of this kind.
fn options(kind: CredentialKind) -> String {
    let agent = kind
        .agent
        .map_or(String::new(), |agent| format!(" --agent {agent}"));
    format!("{agent} --auth {}", kind.auth)
}

/// The error of a credential that is missing or has expired, with the command that stores a new one.
fn not_usable(error: LoginError, kind: CredentialKind) -> CliError {
    CliError::from(error).with_hint(format!("store a new one: `{}`", store_command(kind)))
}
