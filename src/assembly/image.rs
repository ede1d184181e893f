//! The image that a run's sandbox starts from.

use std::path::Path;

use crate::config::{Config, SandboxType};
use crate::engine::{ContentArchive, Engine};
use crate::image::{
    BuildEnvironment, BuildSource, ImageBuilder, ImageRecipe, ImageRequest, Platform, Rebuild,
};
use crate::nix::FlakeInputs;
use crate::scm::main_worktree;

use super::provider::{self, ImageSource};
use super::{AssemblyContext, AssemblyError, Surroundings, provider_image};

/// The image that a sandbox starts from.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreparedImage {
    /// Its name; `None`: the provider needs none.
    pub(crate) image: Option<String>,
    /// Its Dockerfile, if the provider builds it.
    pub(crate) dockerfile: Option<String>,
    /// The files that its Dockerfile copies.
    pub(crate) build_files: Option<ContentArchive>,
    /// The steps of its build, whether they ran now or earlier. Empty if ralph does not build the image.
    pub(crate) build_steps: Vec<&'static str>,
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

/// Makes sure that the image of the provider's sandboxes exists: the one that `sandbox.image` names, as it is, else the
/// planned one. Every sandbox gets its image from here, so none starts from a stale one. A template or snapshot is made
/// with the sandbox, and a rebuild removes it here.
pub(crate) async fn prepare(
    context: &AssemblyContext,
    config: &Config,
    project: &Path,
    rebuild: Rebuild,
) -> Result<PreparedImage, AssemblyError> {
    let request = ImageRequest {
        rebuild,
        ..request(config, project)
    };
    let named = config.settings.sandbox.image.clone();
    if provider::image_source(context, config) == ImageSource::EngineImage && named.is_none() {
        return build(context, &request).await;
    }
    let planned = provider_image::plan(context, config, &request).await?;
    if rebuild == Rebuild::Always {
        planned.discard(context, config).await?;
    }
    planned.push(context, config).await
}

/// Builds the planned image with the engine.
async fn build(context: &AssemblyContext, request: &ImageRequest) -> Result<PreparedImage, AssemblyError> {
    let builder = context.surroundings.image_builder().await?;
    let recipe = builder.read(request).await?;
    report_skipped_flake(context, &recipe);
    let mut observer = context.reporter.image_observer();
    let ensured = builder.ensure(&recipe, observer.as_mut()).await?;
    Ok(PreparedImage {
        image: Some(ensured.image.tag.to_string()),
        dockerfile: None,
        build_files: None,
        build_steps: build_steps(&recipe),
    })
}

/// The steps of the build of an image.
pub(super) fn build_steps(recipe: &ImageRecipe) -> Vec<&'static str> {
    let project = recipe.spec.project.as_ref().map(|_| BUILD_PROJECT);
    std::iter::once(BUILD).chain(project).collect()
}

/// The image of the provider's sandboxes, if the engine has it. Nothing is built or pulled.
pub(crate) async fn find(
    context: &AssemblyContext,
    config: &Config,
    project: &Path,
) -> Result<Option<String>, AssemblyError> {
    if provider::image_source(context, config) != ImageSource::EngineImage {
        return Ok(None);
    }
    let builder = context.surroundings.image_builder().await?;
    let name = if let Some(named) = &config.settings.sandbox.image {
        named.clone()
    } else {
        let recipe = builder.read(&request(config, project)).await?;
        report_skipped_flake(context, &recipe);
        builder.plan(&recipe).await?.image.tag.to_string()
    };
    Ok(builder.engine.image(&name).await?.map(|_| name))
}

/// The image that the configuration asks for in this project.
pub(crate) fn request(config: &Config, project: &Path) -> ImageRequest {
    let image = &config.settings.image;
    let inputs = image.nix.inputs.clone();
    ImageRequest {
        source: BuildSource::Project {
            attribute: image.nix.attribute.clone(),
            inputs: inputs.map_or(FlakeInputs::Tracked, FlakeInputs::Declared),
        },
        base: image.base.clone(),
        refresh_after: image.refresh_after,
        // Daytona's hosts have no other processor.
        platform: (config.provider() == SandboxType::Daytona).then_some(Platform::LinuxAmd64),
        ..ImageRequest::for_project(main_worktree(project), config.settings.agent.kind.image)
    }
}

/// Reports why the project's own flake is not used.
pub(crate) fn report_skipped_flake(context: &AssemblyContext, recipe: &ImageRecipe) {
    if let Some(reason) = &recipe.skipped_flake {
        context
            .reporter
            .inform(&format!("flake.nix is not used: {reason}"));
    }
}

impl Surroundings {
    /// Connects to the container engine, and builds images with it.
    pub async fn image_builder(&self) -> Result<ImageBuilder, AssemblyError> {
        let environment = self.build_environment()?;
        Ok(ImageBuilder {
            engine: Engine::connect(&self.engine(), &environment.host).await?,
            environment,
        })
    }

    /// What building images needs besides an engine.
    pub(crate) fn build_environment(&self) -> Result<BuildEnvironment, AssemblyError> {
        Ok(BuildEnvironment {
            host: self.builder_host(),
            cache_dir: self.cache_dir()?.join("images"),
            clock: self.clock(),
        })
    }
}
