//! `ralph sandbox`

mod exec;
mod ls;
mod prune;
mod rm;

use std::sync::Arc;

use clap::Subcommand;

use crate::assembly::provider;
use crate::sandbox::{Provider, SandboxListing};

use super::{CliError, CliResult, Context, ErrorTopic, configuration, flags};

pub(super) use prune::{PruneSandboxesArgs, parse_age, prune};

/// List sandboxes, run commands in them, and remove them
#[derive(Debug, Subcommand)]
pub(super) enum SandboxCommand {
    Ls(ls::ListSandboxesArgs),
    Exec(exec::ExecSandboxArgs),
    Rm(rm::RemoveSandboxArgs),
    Prune(prune::PruneSandboxesArgs),
}

/// The option that chooses the provider.
#[derive(Debug, clap::Args)]
struct ProviderArgs {
    /// The provider: docker, docker-sandbox, tart, daytona or local; without it, the configured one
    #[arg(long = "type", value_name = "PROVIDER")]
    provider: Option<String>,
}

pub(super) async fn sandbox(context: &Context, command: SandboxCommand) -> CliResult {
    match command {
        SandboxCommand::Ls(args) => ls::ls(context, args).await,
        SandboxCommand::Exec(args) => exec::exec(context, args).await,
        SandboxCommand::Rm(args) => rm::rm(context, args).await,
        SandboxCommand::Prune(args) => prune::prune(context, args).await,
    }
}

impl ProviderArgs {
    fn connect(&self, context: &Context) -> Result<Arc<dyn Provider>, CliError> {
        let given = flags([("--type", "sandbox.type", self.provider.clone())]);
        let config = configuration(context, given)?;
        provider::create_provider(&context.assembly, &config)
    }
}

/// Finds a sandbox by its own name or by its run.
async fn find_sandbox(provider: &dyn Provider, name: &str) -> Result<SandboxListing, CliError> {
    let listed = provider.list().await?;
    let matches =
        |one: &SandboxListing| one.id == name || one.run.as_ref().is_some_and(|run| run.as_str() == name);
    listed.into_iter().find(matches).ok_or_else(|| {
        CliError::usage(format!(
            "there is no sandbox `{name}` of the provider `{}`",
            provider.name()
        ))
        .with_topic(ErrorTopic::Sandbox)
        .with_hint("`ralph sandbox ls` lists them")
    })
}
