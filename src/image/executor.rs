//! Runs the steps of a plan.

use std::fs;
use std::path::{Path, PathBuf};

use super::builder::{ImageBuilder, ImageObserver};
use super::error::ImageError;
use super::load::{LoadRequest, load};
use super::plan::{ImageAction, ImagePlan, ImageStep, OnFailure, PlannedImage};
use super::pulls::PullOutcome;
use super::request::ImageRecipe;
use super::spec::{BuildMode, DockerfileContext, Rebuild};
use super::stages::BASE_ARGUMENT;
use super::tag::ImageTag;
use crate::engine::ImageBuild;

/// Runs the steps of a plan.
pub(super) struct PlanExecutor<'a> {
    pub(super) builder: &'a ImageBuilder,
    pub(super) recipe: &'a ImageRecipe,
}

impl PlanExecutor<'_> {
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
            (Ok(()), _) => Ok(()),
            (Err(error), OnFailure::GoOn) => {
                observer.step_skipped(step, &error.into());
                Ok(())
            }
            (Err(error), OnFailure::Stop) => step
                .pull_error(Some(error))
                .map_or(Ok(()), |error| Err(error.into())),
        }
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
                (ImageAction::BuildBase { image }, _) => self.build_base(image, observer).await?,
                (ImageAction::BuildProject { image, base }, _) => {
                    if let Some(layer) = &self.recipe.spec.project {
                        self.build(image, &layer.file, Some(base.to_string()), observer)
                            .await?;
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

    async fn build_base(
        &self,
        image: &PlannedImage,
        observer: &mut dyn ImageObserver,
    ) -> Result<(), ImageError> {
        match &self.recipe.spec.mode {
            BuildMode::Template { dockerfile, .. } => {
                let file = DockerfileContext::alone(dockerfile.clone());
                self.build(image, &file, None, observer).await
            }
            BuildMode::Dockerfile { base, file } => {
                self.build(image, file, Some(base.to_string()), observer).await
            }
            BuildMode::Nix { .. } => Ok(()),
        }
    }

    /// Builds from a Dockerfile. `base` is the image that it gets as an argument.
    async fn build(
        &self,
        image: &PlannedImage,
        file: &DockerfileContext,
        base: Option<String>,
        observer: &mut dyn ImageObserver,
    ) -> Result<(), ImageError> {
        let base = base.map(|base| (BASE_ARGUMENT.to_owned(), base));
        let build = ImageBuild {
            context: file.context.with_dockerfile(&file.name, &file.text),
            dockerfile: file.name.clone(),
            build_args: base.into_iter().collect(),
            labels: image.labels.clone(),
            tag: image.tag.to_reference()?,
            platform: self.foreign_platform().map(ToOwned::to_owned),
            use_cache: self.recipe.spec.rebuild == Rebuild::WhenNeeded,
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
            super::flake::load_source(built, environment).map_err(ImageError::io("access", built))?;
        let request = LoadRequest {
            source,
            order,
            labels: image.labels.clone(),
            tag: image.tag.to_reference()?,
            cache: environment.layers(),
        };
        let loaded = load(engine, &request, observer).await?;
        observer.image_loaded(&loaded);
        Ok(())
    }

    /// The platform, unless it is the engine's own, which not every engine accepts.
    fn foreign_platform(&self) -> Option<&'static str> {
        self.recipe.spec.platform.unless_native(&self.builder.engine)
    }

    fn build_log(&self, tag: &ImageTag) -> Result<PathBuf, ImageError> {
        let log = self.builder.environment.build_log(tag);
        if let Some(dir) = log.parent() {
            fs::create_dir_all(dir).map_err(ImageError::io("access", dir))?;
        }
        Ok(log)
    }
}
