//! `ralph token get`

use std::io::IsTerminal;

use crate::assembly::credentials::open_vault;
use crate::credential::LoginError;

use super::super::credentials::CredentialArgs;
use super::not_usable;
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic};

/// Print a stored credential, for a pipe or a file
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct GetTokenArgs {
    #[command(flatten)]
    credential: CredentialArgs,
    /// Print it even to a terminal
    #[arg(long)]
    show: bool,
}

pub(in crate::cli) async fn get(context: &Context, args: GetTokenArgs) -> CliResult {
    let (_, kind) = args.credential.kind(context)?;
    if std::io::stdout().is_terminal() && !args.show {
        return Err(CliError::usage("a credential is not printed to a terminal")
            .with_topic(ErrorTopic::Credentials)
            .with_hint("`--show` prints it; a pipe or a file needs no flag"));
    }
    let (credential, _) = open_vault(&context.assembly)?
        .load(kind)
        .await?
        .ok_or_else(|| not_usable(LoginError::Missing(kind), kind))?;
    context.ui.data(credential.token.expose())?;
    Ok(CliExit::Success)
}
