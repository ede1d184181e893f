//! The steps of a plan, done.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Observer;
use crate::engine::{Engine, EngineImageReference, ImageBuild, TarStream};
use crate::image::context::lone_dockerfile;
use crate::image::error::ImageError;
use crate::image::flake::source_of;
use crate::image::load::{self, load};
use crate::image::plan::{Action, OnFailure, Plan, PlannedImage, Step};
use crate::image::project::{self, LayerSource};
use crate::image::pulls::PullOutcome;
use crate::image::reference::ImageReference;
use crate::image::spec::{Mode, Rebuild};
use crate::image::stages;
use crate::image::tag::ImageTag;
use crate::image::tools::Tools;
use crate::image::wish::Recipe;

/// Where the steps of a plan are done.
pub(in crate::image) struct Workshop<'a> {
    engine: &'a Engine,
    recipe: &'a Recipe,
    tools: &'a Tools,
}

/// Whether the same was built before, only to see whether it comes out the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::image) enum Pass {
    First,
    Again,
}

/// What a builder is given.
struct Given {
    context: TarStream,
    dockerfile: String,
    build_args: BTreeMap<String, String>,
}

impl<'a> Workshop<'a> {
    pub(in crate::image) fn new(engine: &'a Engine, recipe: &'a Recipe, tools: &'a Tools) -> Self {
        Self {
            engine,
            recipe,
            tools,
        }
    }

    /// Does the pull that a provisional plan starts with, and remembers how that ended.
    pub(super) async fn pull(&self, step: &Step, observer: &mut dyn Observer) -> Result<(), ImageError> {
        let Action::PullBase { reference } = &step.action else {
            return Ok(());
        };
        observer.begins(step);
        let pulled = self.fetch(reference, observer).await;
        let outcome = match &pulled {
            Ok(()) => PullOutcome::Succeeded,
            Err(_) => PullOutcome::Failed,
        };
        let log = self.tools.pulls(self.engine);
        if let Err(error) = log.record(reference, outcome, self.tools.clock.now()) {
            tracing::warn!(%error, "a pull is not remembered");
        }
        match (pulled, step.on_failure) {
            (Err(error), OnFailure::GoOn) => {
                observer.goes_on(step, &error);
                Ok(())
            }
            (pulled, _) => pulled,
        }
    }

    /// Does all steps but a pull.
    pub(in crate::image) async fn carry_out(
        &self,
        pass: Pass,
        plan: &Plan,
        observer: &mut dyn Observer,
    ) -> Result<(), ImageError> {
        let mut built = None;
        for step in &plan.steps {
            observer.begins(step);
            match (&step.action, &built) {
                (Action::BuildBase { image }, _) => self.build_base(image, observer).await?,
                (Action::BuildProject { image, base }, _) => {
                    self.build_project(image, base, observer).await?;
                }
                (Action::NixBuild { .. }, _) => {
                    built = self.nix_build(pass, &plan.image.tag, observer).await?;
                }
                (Action::Load { image }, Some(built)) => self.load(built, image, observer).await?,
                // A plan loads only what it built, and is not carried out as long as it is provisional.
                (Action::Load { .. }, None) | (Action::PullBase { .. }, _) => {}
            }
        }
        Ok(())
    }

    async fn fetch(&self, base: &ImageReference, observer: &mut dyn Observer) -> Result<(), ImageError> {
        let name = EngineImageReference::parse(base.as_str())?;
        Ok(self.engine.pull(&name, self.other_platform(), observer).await?)
    }

    async fn build_base(&self, image: &PlannedImage, observer: &mut dyn Observer) -> Result<(), ImageError> {
        let given = match self.recipe.spec.mode() {
            Mode::Dockerfile { dockerfile, .. } => Given::alone(dockerfile, None),
            Mode::File { base, file } => Given {
                context: file.context.with_dockerfile(&file.name, &file.text),
                dockerfile: file.name.clone(),
                build_args: base_argument(base.as_str()),
            },
            Mode::Nix { .. } => return Ok(()),
        };
        self.build(image, given, observer).await
    }

    async fn build_project(
        &self,
        image: &PlannedImage,
        base: &ImageTag,
        observer: &mut dyn Observer,
    ) -> Result<(), ImageError> {
        let Some(layer) = self.recipe.spec.project() else {
            return Ok(());
        };
        let base = base.to_string();
        let given = match &layer.source {
            LayerSource::Dependencies => Given::alone(&layer.dockerfile, Some(&base)),
            LayerSource::Dockerfile(context) => Given {
                context: context.with_dockerfile(project::DOCKERFILE, &layer.dockerfile),
                dockerfile: project::DOCKERFILE.to_owned(),
                build_args: base_argument(&base),
            },
        };
        self.build(image, given, observer).await
    }

    async fn build(
        &self,
        image: &PlannedImage,
        given: Given,
        observer: &mut dyn Observer,
    ) -> Result<(), ImageError> {
        let build = ImageBuild {
            context: given.context,
            dockerfile: given.dockerfile,
            build_args: given.build_args,
            labels: labels_of(image),
            tag: EngineImageReference::parse(&image.tag.to_string())?,
            platform: self.other_platform().map(ToOwned::to_owned),
            use_cache: self.recipe.spec.when_to_build() == Rebuild::WhenNeeded,
            log: self.log_of(&image.tag)?,
        };
        self.engine.build(build, observer).await?;
        Ok(())
    }

    async fn nix_build(
        &self,
        pass: Pass,
        tag: &ImageTag,
        observer: &mut dyn Observer,
    ) -> Result<Option<PathBuf>, ImageError> {
        match &self.recipe.flake {
            Some(image) => {
                let log = self.log_of(tag)?;
                image.build(pass, log, observer).await.map(Some)
            }
            None => Ok(None),
        }
    }

    async fn load(
        &self,
        built: &Path,
        image: &PlannedImage,
        observer: &mut dyn Observer,
    ) -> Result<(), ImageError> {
        let (source, order) = source_of(built, self.tools).map_err(ImageError::file(built))?;
        let request = load::LoadRequest {
            source,
            order,
            labels: labels_of(image),
            tag: EngineImageReference::parse(&image.tag.to_string())?,
            cache: self.tools.layers(),
        };
        let loaded = load(self.engine, &request, observer).await?;
        observer.loaded(&loaded);
        Ok(())
    }

    /// The platform, where it is not the engine's own: not every engine takes one that is.
    fn other_platform(&self) -> Option<&'static str> {
        self.recipe.spec.platform().unless_of(self.engine)
    }

    fn log_of(&self, tag: &ImageTag) -> Result<PathBuf, ImageError> {
        let log = self.tools.log_of(tag);
        if let Some(dir) = log.parent() {
            fs::create_dir_all(dir).map_err(ImageError::file(dir))?;
        }
        Ok(log)
    }
}

impl Given {
    /// A Dockerfile with nothing around it.
    fn alone(dockerfile: &str, base: Option<&str>) -> Self {
        Self {
            context: lone_dockerfile(dockerfile),
            dockerfile: "Dockerfile".to_owned(),
            build_args: base.map(base_argument).unwrap_or_default(),
        }
    }
}

fn base_argument(base: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(stages::ARGUMENT.to_owned(), base.to_owned())])
}

fn labels_of(image: &PlannedImage) -> BTreeMap<String, String> {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    image.labels.iter().map(owned).collect()
}
