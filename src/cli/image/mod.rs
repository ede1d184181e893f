//! `ralph image`, and the image that a run starts from.

mod build;
mod check;
mod lock;
mod progress;
mod prune;
mod pull;
mod push;
mod scene;
mod status;
mod target;
mod wanted;

use std::path::Path;

use clap::Subcommand;

use crate::config::Config;
use crate::engine::{Engine, EngineError};
use crate::image::{ImageError, Rebuild, Recipe, Tools, Wish, ensure, plan, survey};
use crate::sandbox::connect::Ground;
use crate::scm::main_worktree;

use super::Context;
use super::assemble;
use super::error::{CliError, Exit};
use progress::observer;
use wanted::Wanted;

/// Build, share, show and prune the images that sandboxes start from
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Build(build::Args),
    Pull(pull::Args),
    Push(push::Args),
    Status(status::Args),
    Prune(prune::Args),
}

pub(super) async fn image(context: &Context, args: Args) -> Result<Exit, CliError> {
    match args.what {
        What::Build(args) => build::build(context, args).await,
        What::Pull(args) => pull::pull(context, args).await,
        What::Push(args) => push::push(context, args).await,
        What::Status(args) => status::status(context, args).await,
        What::Prune(args) => prune::prune(context, args).await,
    }
}

/// Whether the image is built anew, for every command that starts from one.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct RebuildFlag {
    /// Pull the base, and build the image and the project's layer anew
    #[arg(long)]
    rebuild: bool,
}

impl From<RebuildFlag> for Rebuild {
    fn from(flag: RebuildFlag) -> Self {
        if flag.rebuild {
            Self::Always
        } else {
            Self::WhenNeeded
        }
    }
}

/// The image that the chosen provider's sandboxes start from: the one that `sandbox.image` names, as it is, else the
/// planned one, which is there afterwards. `None`: the provider needs none.
pub(super) async fn for_sandbox(
    context: &Context,
    config: &Config,
    project: &Path,
    rebuild: RebuildFlag,
) -> Result<Option<String>, CliError> {
    Ok(prepare(context, config, project, rebuild).await?.image)
}

/// What a sandbox starts from.
pub(super) struct Prepared {
    /// The image; `None`: the provider needs none.
    pub(super) image: Option<String>,
    /// What was built for it, or was there: nothing for one that the configuration names.
    pub(super) built: Vec<&'static str>,
}

const BUILD: &str = "build image";
const BUILD_PROJECT: &str = "build project image";

/// What the building of a project's image is called as long as nothing is known but where it is.
pub(super) fn name_of_build(project: &Path) -> &'static str {
    if main_worktree(project).join(".agent-loop").is_dir() {
        BUILD_PROJECT
    } else {
        BUILD
    }
}

/// As [`for_sandbox`], with what was built.
///
/// There is no other way to an image, so that no sandbox starts from one that is stale.
pub(super) async fn prepare(
    context: &Context,
    config: &Config,
    project: &Path,
    rebuild: RebuildFlag,
) -> Result<Prepared, CliError> {
    let named = config.settings.sandbox.image.clone();
    let as_named = |image| {
        Ok(Prepared {
            image,
            built: Vec::new(),
        })
    };
    match (assemble::choice(context, config)?.ground(), named) {
        (Ground::Nothing, _) => return as_named(None),
        (Ground::NamedImage, named) => return as_named(named),
        (Ground::EngineImage, Some(named)) => return as_named(Some(named)),
        (Ground::EngineImage, None) => {}
    }
    let wish = Wish {
        rebuild: rebuild.into(),
        ..Wanted::default().wish(context, config, project)
    };
    let tools = tools(context)?;
    let engine = engine(context, &tools).await?;
    let recipe = read(context, &wish, Some(&engine), &tools).await?;
    let ensured = ensure(&engine, &recipe, &tools, observer(context.ui).as_mut()).await?;
    let project = recipe.spec.project().map(|_| BUILD_PROJECT);
    Ok(Prepared {
        image: Some(ensured.image.tag.to_string()),
        built: std::iter::once(BUILD).chain(project).collect(),
    })
}

/// The image that sandboxes of the chosen provider start from, if an engine has it. Nothing is built or pulled.
pub(super) async fn at_hand(
    context: &Context,
    config: &Config,
    project: &Path,
) -> Result<Option<String>, CliError> {
    if assemble::choice(context, config)?.ground() != Ground::EngineImage {
        return Ok(None);
    }
    let tools = tools(context)?;
    let engine = engine(context, &tools).await?;
    let name = if let Some(named) = &config.settings.sandbox.image {
        named.clone()
    } else {
        let wish = Wanted::default().wish(context, config, project);
        let recipe = read(context, &wish, Some(&engine), &tools).await?;
        let facts = survey(&engine, &recipe.spec, &tools).await?;
        plan(&recipe.spec, &facts).image.tag.to_string()
    };
    Ok(engine.image(&name).await?.map(|_| name))
}

/// The engine that has the images.
pub(super) async fn connect(context: &Context) -> Result<Engine, CliError> {
    Ok(engine(context, &tools(context)?).await?)
}

/// Reads what an image is made from, and says so where that is not the project's own flake.
async fn read(
    context: &Context,
    wish: &Wish,
    engine: Option<&Engine>,
    tools: &Tools,
) -> Result<Recipe, ImageError> {
    let recipe = wish.read(engine, tools).await?;
    if let Some(reason) = &recipe.passed_over {
        context
            .ui
            .say(format_args!("The project's flake.nix is not used: {reason}."));
    }
    Ok(recipe)
}

/// What images are made with here.
fn tools(context: &Context) -> Result<Tools, CliError> {
    Ok(Tools {
        host: context.surroundings.builder_host(),
        cache: context.surroundings.cache_dir()?.join("images"),
        clock: crate::clock::system(),
    })
}

async fn engine(context: &Context, tools: &Tools) -> Result<Engine, EngineError> {
    Engine::connect(&context.surroundings.engine(), &tools.host).await
}
