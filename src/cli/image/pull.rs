//! `ralph image pull`

use serde::Serialize;

use crate::engine::{Engine, EngineImageReference};
use crate::image::{Shared, present, settle};

use super::super::Context;
use super::super::error::{CliError, CliExit};
use super::lock::Lock;
use super::progress::observer;
use super::scene::Scene;
use super::target::Target;
use super::wanted::Wanted;

/// Pull the image: the one that `sandbox.image` names, or the planned one from `sandbox.registry`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Pull it even if it is here and `sandbox.use_local_image` is set
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done, for programs.
#[derive(Serialize)]
struct Report {
    image: String,
    remote: String,
    pulled: bool,
}

pub(super) async fn pull(context: &Context, args: Args) -> Result<CliExit, CliError> {
    let scene = Scene::of(context, &args.wanted)?;
    let target = Target::of(&scene.config)?;
    let engine = scene.engine().await?;
    let may_skip = scene.config.settings.sandbox.use_local_image && !args.force;
    let here = if may_skip {
        Here::IsEnough
    } else {
        Here::IsNotEnough
    };
    let report = match target {
        Target::Named(name) => named(context, &engine, name, here).await?,
        Target::Planned { registry } => {
            planned(
                context,
                &scene,
                &engine,
                Planned {
                    args: &args,
                    registry,
                    here,
                },
            )
            .await?
        }
    };
    if !report.pulled {
        context.ui.say(format_args!(
            "{} is here, and `sandbox.use_local_image` is set: not pulled. `--force` pulls it.",
            report.image
        ));
    }
    if args.json {
        context.ui.json(&report)?;
    } else {
        context.ui.data(&report.image)?;
    }
    Ok(CliExit::Success)
}

/// Whether an image that is here need not be pulled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Here {
    IsEnough,
    IsNotEnough,
}

struct Planned<'a> {
    args: &'a Args,
    registry: String,
    here: Here,
}

async fn named(
    context: &Context,
    engine: &Engine,
    name: EngineImageReference,
    here: Here,
) -> Result<Report, CliError> {
    let text = name.to_string();
    let skips = here == Here::IsEnough && engine.image(&text).await?.is_some();
    if !skips {
        engine.pull(&name, None, observer(context.ui).as_mut()).await?;
    }
    Ok(Report {
        image: text.clone(),
        remote: text,
        pulled: !skips,
    })
}

async fn planned(
    context: &Context,
    scene: &Scene<'_>,
    engine: &Engine,
    wanted: Planned<'_>,
) -> Result<Report, CliError> {
    let wish = scene.wish(&wanted.args.wanted);
    let recipe = scene.read(&wish, Some(engine)).await?;
    let mut observer = observer(context.ui);
    let plan = settle(engine, &recipe, &scene.tools, observer.as_mut()).await?;
    let platform = recipe.spec.platform();
    let lock = Lock::of_project(&wish.project)?;
    let locked = lock.as_ref().and_then(|lock| lock.of(&plan.image, platform));
    let shared = Shared {
        recorded: locked.map(|locked| locked.digest.clone()),
        ..Shared::at(&wanted.registry, plan.image.clone(), platform)?
    };
    let skips = wanted.here == Here::IsEnough && present(engine, &plan.image).await?.is_some();
    if !skips {
        shared.pull(engine, &scene.tools, observer.as_mut()).await?;
    }
    Ok(Report {
        image: plan.image.tag.to_string(),
        remote: shared.remote.to_string(),
        pulled: !skips,
    })
}
