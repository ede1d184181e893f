//! `ralph image push`

use serde::Serialize;

use crate::image::{Shared, plan, survey};

use super::super::Context;
use super::super::error::{CliError, CliExit};
use super::progress::observer;
use super::scene::Scene;
use super::target::Target;
use super::wanted::Wanted;

/// Push the image: the one that `sandbox.image` names, or the planned one to `sandbox.registry`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done, for programs.
#[derive(Serialize)]
struct Report {
    image: String,
    remote: String,
}

pub(super) async fn push(context: &Context, args: Args) -> Result<CliExit, CliError> {
    let scene = Scene::of(context, &args.wanted)?;
    let target = Target::of(&scene.config)?;
    let engine = scene.engine().await?;
    let report = match target {
        Target::Named(name) => {
            engine.push(&name, observer(context.ui).as_mut()).await?;
            Report {
                image: name.to_string(),
                remote: name.to_string(),
            }
        }
        Target::Planned { registry } => {
            let recipe = scene.read(&scene.wish(&args.wanted), Some(&engine)).await?;
            let facts = survey(&engine, &recipe.spec, &scene.tools).await?;
            let shared = Shared::at(
                &registry,
                plan(&recipe.spec, &facts).image,
                recipe.spec.platform(),
            )?;
            shared.push(&engine, observer(context.ui).as_mut()).await?;
            Report {
                image: shared.image.tag.to_string(),
                remote: shared.remote.to_string(),
            }
        }
    };
    if args.json {
        context.ui.json(&report)?;
    } else {
        context.ui.data(&report.remote)?;
    }
    Ok(CliExit::Success)
}
