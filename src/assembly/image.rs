//! The image that a run's sandbox starts from.

use std::path::Path;

use crate::config::Config;
use crate::engine::{Engine, EngineError};
use crate::image::{ImageError, Origin, Rebuild, Recipe, Tools, Wish, ensure, plan, survey};
use crate::nix::FlakeInputs;
use crate::sandbox::connect::ImageSource;
use crate::scm::main_worktree;

use super::{AssemblyContext, AssemblyError, provider};

/// What a sandbox starts from.
pub(crate) struct Prepared {
    /// The image; `None`: the provider needs none.
    pub(crate) image: Option<String>,
    /// What was built for it, or was there: nothing for one that the configuration names.
    pub(crate) built: Vec<&'static str>,
}

const BUILD: &str = "build image";
const BUILD_PROJECT: &str = "build project image";

/// The name of the build step that a failed build of a project's image belongs to.
pub(crate) fn build_step_name(project: &Path) -> &'static str {
    if main_worktree(project).join(".agent-loop").is_dir() {
        BUILD_PROJECT
    } else {
        BUILD
    }
}

/// The image that the chosen provider's sandboxes start from: the one that `sandbox.image` names, as it is, else the
/// planned one, which is there afterwards.
///
/// There is no other way to an image, so that no sandbox starts from one that is stale.
pub(crate) async fn prepare(
    context: &AssemblyContext,
    config: &Config,
    project: &Path,
    rebuild: Rebuild,
) -> Result<Prepared, AssemblyError> {
    let named = config.settings.sandbox.image.clone();
    let as_named = |image| {
        Ok(Prepared {
            image,
            built: Vec::new(),
        })
    };
    match (provider::image_source(context, config)?, named) {
        (ImageSource::Nothing, _) => return as_named(None),
        (ImageSource::NamedImage, named) => return as_named(named),
        (ImageSource::EngineImage, Some(named)) => return as_named(Some(named)),
        (ImageSource::EngineImage, None) => {}
    }
    let wish = Wish {
        rebuild,
        ..wish(config, project)
    };
    let tools = tools(context)?;
    let engine = engine(context, &tools).await?;
    let recipe = read(context, &wish, Some(&engine), &tools).await?;
    let mut observer = context.reporter.image_observer();
    let ensured = ensure(&engine, &recipe, &tools, observer.as_mut()).await?;
    let project = recipe.spec.project().map(|_| BUILD_PROJECT);
    Ok(Prepared {
        image: Some(ensured.image.tag.to_string()),
        built: std::iter::once(BUILD).chain(project).collect(),
    })
}

/// The image that sandboxes of the chosen provider start from, if an engine has it. Nothing is built or pulled.
pub(crate) async fn at_hand(
    context: &AssemblyContext,
    config: &Config,
    project: &Path,
) -> Result<Option<String>, AssemblyError> {
    if provider::image_source(context, config)? != ImageSource::EngineImage {
        return Ok(None);
    }
    let tools = tools(context)?;
    let engine = engine(context, &tools).await?;
    let name = if let Some(named) = &config.settings.sandbox.image {
        named.clone()
    } else {
        let recipe = read(context, &wish(config, project), Some(&engine), &tools).await?;
        let facts = survey(&engine, &recipe.spec, &tools).await?;
        plan(&recipe.spec, &facts).image.tag.to_string()
    };
    Ok(engine.image(&name).await?.map(|_| name))
}

/// The image that the configuration asks for in this project.
pub(crate) fn wish(config: &Config, project: &Path) -> Wish {
    let nix = &config.settings.image.nix;
    Wish {
        project: main_worktree(project),
        agent: config.settings.agent.name.image,
        platform: None,
        origin: Origin::Project {
            attribute: nix.attribute.clone(),
            inputs: nix
                .inputs
                .clone()
                .map_or(FlakeInputs::Tracked, FlakeInputs::Declared),
        },
        base: config.settings.image.base.clone(),
        rebuild: Rebuild::WhenNeeded,
        refresh_after: config.settings.image.refresh_after,
    }
}

/// The engine that has the images.
pub(crate) async fn connect(context: &AssemblyContext) -> Result<Engine, AssemblyError> {
    Ok(engine(context, &tools(context)?).await?)
}

/// Reads what an image is made from, and reports why the project's own flake is not used.
pub(crate) async fn read(
    context: &AssemblyContext,
    wish: &Wish,
    engine: Option<&Engine>,
    tools: &Tools,
) -> Result<Recipe, ImageError> {
    let recipe = wish.read(engine, tools).await?;
    if let Some(reason) = &recipe.passed_over {
        context
            .reporter
            .inform(&format!("The project's flake.nix is not used: {reason}."));
    }
    Ok(recipe)
}

/// What images are made with.
pub(crate) fn tools(context: &AssemblyContext) -> Result<Tools, AssemblyError> {
    Ok(Tools {
        host: context.surroundings.builder_host(),
        cache: context.surroundings.cache_dir()?.join("images"),
        clock: context.surroundings.clock(),
    })
}

/// The container engine of the surroundings.
pub(crate) async fn engine(context: &AssemblyContext, tools: &Tools) -> Result<Engine, EngineError> {
    Engine::connect(&context.surroundings.engine(), &tools.host).await
}
