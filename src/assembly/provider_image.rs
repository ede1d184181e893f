//! The image of a provider that keeps its images itself: the template of Tart, the snapshot of Daytona.

use crate::config::Config;
use crate::id::RunId;
use crate::image::{ImageBuilder, ImageRecipe, ImageRequest, RegistryImage};
use crate::sandbox::{Purpose, SandboxSpec};

use super::image::{PreparedImage, build_steps, report_skipped_flake};
use super::provider::{self, ImageSource};
use super::{AssemblyContext, AssemblyError, ErrorTopic};

/// What to do without an engine that builds and pushes the image.
const NO_ENGINE: &str = "start a container engine, which builds the image for `sandbox.registry`; or unset \
    `sandbox.registry`, and Daytona builds it; or set `sandbox.image` to an image that was pushed elsewhere";

/// What the sandboxes of a configuration start from. Nothing is made yet.
pub(crate) struct PlannedProviderImage {
    pub(crate) image: PreparedImage,
    /// The image to push, and what builds it.
    to_push: Option<(ImageBuilder, ImageRecipe, RegistryImage)>,
}

/// Plans what sandboxes start from, without building or pushing it. Pulls the base of an image for a registry if that is
/// due, because its tag depends on it.
pub(crate) async fn plan(
    context: &AssemblyContext,
    config: &Config,
    request: &ImageRequest,
) -> Result<PlannedProviderImage, AssemblyError> {
    let sandbox = &config.settings.sandbox;
    let mut planned = PlannedProviderImage {
        image: PreparedImage::default(),
        to_push: None,
    };
    match (provider::image_source(context, config), &sandbox.registry) {
        (ImageSource::Nothing, _) => {}
        (ImageSource::NamedImage | ImageSource::EngineImage, _) => {
            planned.image.image.clone_from(&sandbox.image);
        }
        (ImageSource::RegistryImage, Some(registry)) => {
            let builder = context.surroundings.image_builder().await;
            let builder = builder.map_err(|error| error.with_hint(NO_ENGINE))?;
            let recipe = builder.read(request).await?;
            report_skipped_flake(context, &recipe);
            let mut observer = context.reporter.image_observer();
            let (_, plan) = builder.pull_and_plan(&recipe, observer.as_mut()).await?;
            let image = RegistryImage::new(registry, plan.image, recipe.spec.platform)?;
            planned.image.image = Some(image.remote.to_string());
            planned.image.build_steps = build_steps(&recipe);
            planned.to_push = Some((builder, recipe, image));
        }
        (ImageSource::SentDockerfile | ImageSource::RegistryImage, _) => {
            let environment = context.surroundings.build_environment()?;
            let recipe = request.read(None, &environment).await?;
            report_skipped_flake(context, &recipe);
            planned.image.image = Some(recipe.spec.repository());
            let single = recipe.spec.single_dockerfile()?;
            planned.image.dockerfile = Some(single.text);
            planned.image.build_files = single.files;
        }
    }
    Ok(planned)
}

impl PlannedProviderImage {
    /// A sandbox that starts from it.
    pub(crate) fn spec(&self, context: &AssemblyContext, config: &Config) -> SandboxSpec {
        let run = RunId::random();
        SandboxSpec {
            purpose: Purpose {
                agent: context.agent_name(config),
                branch: format!("image/{run}"),
                task: format!("image {run}"),
            },
            image: self.image.image.clone(),
            dockerfile: self.image.dockerfile.clone(),
            build_files: self.image.build_files.clone(),
            resources: config.resources(),
            default_limits: config.default_limits(),
            ..SandboxSpec::unrestricted(run)
        }
    }

    /// Removes the template or snapshot, so that it is made again. One that someone else made is left alone.
    pub(crate) async fn discard(
        &self,
        context: &AssemblyContext,
        config: &Config,
    ) -> Result<(), AssemblyError> {
        let provider = provider::create_provider(context, config)?;
        let Some(images) = provider.images() else {
            return Ok(());
        };
        for image in images.list(&self.spec(context, config)).await? {
            if image.is_planned && image.is_present && !image.is_own {
                let message = format!(
                    "`{}` cannot be made again: ralph has no record of making it",
                    image.name
                );
                return Err(AssemblyError::usage(message)
                    .with_topic(ErrorTopic::Image)
                    .with_hint(
                        "remove it with the tool of the provider (`tart delete NAME`), then try again",
                    ));
            }
            if image.is_planned && image.is_present {
                images.remove(&image.name).await?;
            }
        }
        Ok(())
    }

    /// Builds and pushes an image for a registry, unless the provider has it already.
    pub(crate) async fn push(
        self,
        context: &AssemblyContext,
        config: &Config,
    ) -> Result<PreparedImage, AssemblyError> {
        if let Some((builder, recipe, image)) = &self.to_push {
            let provider = provider::create_provider(context, config)?;
            let listed = match provider.images() {
                Some(images) => images.list(&self.spec(context, config)).await?,
                None => Vec::new(),
            };
            if !listed.iter().any(|one| one.is_planned && one.is_present) {
                let mut observer = context.reporter.image_observer();
                builder.ensure(recipe, observer.as_mut()).await?;
                image.push(builder, observer.as_mut()).await?;
            }
        }
        Ok(self.image)
    }
}
