//! `ralph sandbox`

mod age;
mod exec;
mod ls;
mod prune;
mod rm;

use std::sync::Arc;

use clap::Subcommand;

use crate::assembly::provider;
use crate::sandbox::{Listed, Provider};

use super::Context;
use super::error::{CliError, Exit};
use super::overrides::{configuration, flags};

pub(super) use prune::{Args as PruneArgs, prune};

/// List sandboxes, look into them, and remove them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Ls(ls::Args),
    Exec(exec::Args),
    Rm(rm::Args),
    Prune(prune::Args),
}

/// Which provider's sandboxes are meant.
#[derive(Debug, clap::Args)]
struct Kind {
    /// The provider: docker, docker-sandbox, tart, daytona or local; without it, the configured one
    #[arg(long = "type", value_name = "PROVIDER")]
    provider: Option<String>,
}

pub(super) async fn sandbox(context: &Context, args: Args) -> Result<Exit, CliError> {
    match args.what {
        What::Ls(args) => ls::ls(context, args).await,
        What::Exec(args) => exec::exec(context, args).await,
        What::Rm(args) => rm::rm(context, args).await,
        What::Prune(args) => prune::prune(context, args).await,
    }
}

impl Kind {
    fn provider(&self, context: &Context) -> Result<Arc<dyn Provider>, CliError> {
        let given = flags([("--type", "sandbox.type", self.provider.clone())]);
        let config = configuration(context, None, given)?;
        Ok(provider::connected(&context.assembly, &config)?)
    }
}

/// The sandbox that was named, by its own name or by its run's.
async fn named(provider: &dyn Provider, name: &str) -> Result<Listed, CliError> {
    let listed = provider.list().await?;
    let is_meant = |one: &Listed| one.id == name || one.run.as_ref().is_some_and(|run| run.as_str() == name);
    listed.into_iter().find(is_meant).ok_or_else(|| {
        CliError::usage(format!(
            "there is no sandbox `{name}` of the provider `{}`",
            provider.name()
        ))
        .hint("`ralph sandbox ls` lists them")
    })
}
