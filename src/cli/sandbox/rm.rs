//! `ralph sandbox rm`

use crate::sandbox::{RemovalScope, SandboxOwnership};

use super::{ProviderArgs, find_sandbox};
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic};

/// Remove a sandbox; its run continues in a new one, from the last checkpoint
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RemoveSandboxArgs {
    #[command(flatten)]
    provider: ProviderArgs,
    /// The sandboxes, or their runs
    #[arg(required = true)]
    sandboxes: Vec<String>,
    /// Remove it even while a run is working in it
    #[arg(long)]
    force: bool,
}

pub(super) async fn rm(context: &Context, args: RemoveSandboxArgs) -> CliResult {
    let provider = args.provider.connect(context)?;
    for name in &args.sandboxes {
        let listed = find_sandbox(provider.as_ref(), name).await?;
        if listed.standing == SandboxOwnership::InUse && !args.force {
            return Err(CliError::usage(format!("`{}` is in use", listed.id))
                .with_topic(ErrorTopic::Sandbox)
                .with_hint("`ralph stop` ends its run; `--force` removes it anyway"));
        }
        if provider.remove(&listed.id, RemovalScope::Any).await? {
            context.ui.say(format_args!("Removed {}.", listed.id));
        }
    }
    context
        .ui
        .next("`ralph resume RUN` continues a run in a new sandbox");
    Ok(CliExit::Success)
}
