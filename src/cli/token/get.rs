//! `ralph token get`

use std::io::IsTerminal;

use crate::assembly::credentials::vault;
use crate::credential::LoginError;

use super::super::Context;
use super::super::credentials::Which;
use super::super::error::{CliError, Exit};

/// Print a stored credential, for a pipe or a file
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct GetArgs {
    #[command(flatten)]
    which: Which,
    /// Print it to a terminal too
    #[arg(long)]
    show: bool,
}

pub(in crate::cli) async fn get(context: &Context, args: GetArgs) -> Result<Exit, CliError> {
    let (_, kind) = args.which.kind(context)?;
    if std::io::stdout().is_terminal() && !args.show {
        return Err(CliError::usage("a credential is not shown on a terminal unasked")
            .hint("`--show` prints it; a pipe or a file gets it without"));
    }
    let (credential, _) = vault(&context.assembly)?
        .load(kind)
        .await?
        .ok_or(LoginError::Missing(kind))?;
    context.ui.data(credential.token.expose())?;
    Ok(Exit::Success)
}
