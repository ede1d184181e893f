//! Runs the steps of a plan.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::builder::{ImageBuilder, ImageObserver};
use super::context::lone_dockerfile;
use super::error::ImageError;
use super::load::{LoadRequest, load};
use super::plan::{ImageAction, ImagePlan, ImageStep, OnFailure, PlannedImage};
use super::project::{DOCKERFILE, ProjectLayerSource};
use super::pulls::PullOutcome;
use super::request::ImageRecipe;
use super::spec::{BuildMode, Rebuild};
use super::stages::BASE_ARGUMENT;
use super::tag::ImageTag;
use crate::engine::{ImageBuild, TarStream};

/// Runs the steps of a plan.
pub(super) struct PlanExecutor<'a> {
    builder: &'a ImageBuilder,
    recipe: &'a ImageRecipe,
}

/// The build context, the name of the Dockerfile in it, and the base image that it gets as an argument.
struct BuildInput {
    context: TarStream,
    dockerfile: String,
    base: Option<String>,
}

impl<'a> PlanExecutor<'a> {
    pub(super) fn new(builder: &'a ImageBuilder, recipe: &'a ImageRecipe) -> Self {
        Self { builder, recipe }
    }

    /// Runs the pull that a provisional plan starts with, and records its outcome.
    pub(super) async fn pull(
        &self,
        step: &ImageStep,
        observer: &mut dyn ImageObserver,
    ) -> Result<(), ImageError> {
        let ImageAction::PullBase { reference } = &step.action else {
            return Ok(());
        };
        observer.step_started(step);
        let ImageBuilder { engine, environment } = self.builder;
        let pulled = engine
            .pull(reference.as_engine_reference(), self.foreign_platform(), observer)
            .await;
        let outcome = match &pulled {
            Ok(()) => PullOutcome::Succeeded,
            Err(_) => PullOutcome::Failed,
        };
        let log = environment.pulls(engine);
        log.record(reference, outcome, environment.clock.now());
        match (pulled, step.on_failure) {
            (Err(error), OnFailure::GoOn) => observer.step_skipped(step, &error.into()),
            (pulled, _) => pulled?,
        }
        Ok(())
    }

    /// Runs all steps but a pull. With `again`, Nix compares its result with that of the build before.
    pub(super) async fn run(
        &self,
        plan: &ImagePlan,
        again: bool,
        observer: &mut dyn ImageObserver,
    ) -> Result<(), ImageError> {
        let mut built = None;
        for step in &plan.steps {
            observer.step_started(step);
            match (&step.action, &built) {
                (ImageAction::BuildBase { image }, _) => {
                    if let Some(input) = self.base_input() {
                        self.build(image, input, observer).await?;
                    }
                }
                (ImageAction::BuildProject { image, base }, _) => {
                    if let Some(input) = self.project_input(base) {
                        self.build(image, input, observer).await?;
                    }
                }
                (ImageAction::NixBuild { .. }, _) => {
                    if let Some(flake) = &self.recipe.flake {
                        let log = self.build_log(&plan.image.tag)?;
                        built = Some(flake.build(again, log, observer).await?);
                    }
                }
                (ImageAction::Load { image }, Some(built)) => self.load(built, image, observer).await?,
                // A plan loads only what it built, and is not run while it is provisional.
                (ImageAction::Load { .. }, None) | (ImageAction::PullBase { .. }, _) => {}
            }
        }
        Ok(())
    }

    fn base_input(&self) -> Option<BuildInput> {
        match self.recipe.spec.mode() {
            BuildMode::Template { dockerfile, .. } => Some(BuildInput::without_context(dockerfile, None)),
            BuildMode::Dockerfile { base, file } => Some(BuildInput {
                context: file.context.with_dockerfile(&file.name, &file.text),
                dockerfile: file.name.clone(),
                base: Some(base.to_string()),
            }),
            BuildMode::Nix { .. } => None,
        }
    }

    fn project_input(&self, base: &ImageTag) -> Option<BuildInput> {
        let layer = self.recipe.spec.project()?;
        let base = Some(base.to_string());
        Some(match &layer.source {
            ProjectLayerSource::Dependencies => BuildInput::without_context(&layer.dockerfile, base),
            ProjectLayerSource::Dockerfile(context) => BuildInput {
                context: context.with_dockerfile(DOCKERFILE, &layer.dockerfile),
                dockerfile: DOCKERFILE.to_owned(),
                base,
            },
        })
    }

    async fn build(
        &self,
        image: &PlannedImage,
        input: BuildInput,
        observer: &mut dyn ImageObserver,
    ) -> Result<(), ImageError> {
        let base = input.base.map(|base| (BASE_ARGUMENT.to_owned(), base));
        let build = ImageBuild {
            context: input.context,
            dockerfile: input.dockerfile,
            build_args: base.into_iter().collect(),
            labels: labels_of(image),
            tag: image.tag.to_reference()?,
            platform: self.foreign_platform().map(ToOwned::to_owned),
            use_cache: self.recipe.spec.when_to_build() == Rebuild::WhenNeeded,
            log: self.build_log(&image.tag)?,
        };
        self.builder.engine.build(build, observer).await?;
        Ok(())
    }

    async fn load(
        &self,
        built: &Path,
        image: &PlannedImage,
        observer: &mut dyn ImageObserver,
    ) -> Result<(), ImageError> {
        let ImageBuilder { engine, environment } = self.builder;
        let (source, order) =
            super::flake::load_source(built, environment).map_err(ImageError::file(built))?;
        let request = LoadRequest {
            source,
            order,
            labels: labels_of(image),
            tag: image.tag.to_reference()?,
            cache: environment.layers(),
        };
        let loaded = load(engine, &request, observer).await?;
        observer.image_loaded(&loaded);
        Ok(())
    }

    /// The platform, unless it is the engine's own, which not every engine accepts.
    fn foreign_platform(&self) -> Option<&'static str> {
        self.recipe.spec.platform().unless_native(&self.builder.engine)
    }

    fn build_log(&self, tag: &ImageTag) -> Result<PathBuf, ImageError> {
        let log = self.builder.environment.build_log(tag);
        if let Some(dir) = log.parent() {
            fs::create_dir_all(dir).map_err(ImageError::file(dir))?;
        }
        Ok(log)
    }
}

impl BuildInput {
    /// A Dockerfile that needs no files.
    fn without_context(dockerfile: &str, base: Option<String>) -> Self {
        Self {
            context: lone_dockerfile(dockerfile),
            dockerfile: "Dockerfile".to_owned(),
            base,
        }
    }
}

fn labels_of(image: &PlannedImage) -> BTreeMap<String, String> {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    image.labels.iter().map(owned).collect()
}
