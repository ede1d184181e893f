//! Plans and builds images with one engine.

use futures_util::future::try_join_all;

use super::engine_state::{BaseIdentity, BaseImage, EngineState, PullHistory, TaggedImage};
use super::environment::BuildEnvironment;
use super::error::ImageError;
use super::executor::PlanExecutor;
use super::labels;
use super::load::LoadedImage;
use super::plan::{ImageAction, ImagePlan, ImageStep, PlannedBase, PlannedImage, StepReason};
use super::request::{ImageRecipe, ImageRequest};
use super::spec::ImageSpec;
use crate::engine::{Engine, EngineError, EngineImage, ImageStore, ProgressSink};
use crate::exec::{Discard, OutputSink};

/// The host that podman puts before a name without one.
const LOCAL_HOST: &str = "localhost/";

/// Receives the progress of an image build: its steps, and what builders and engines print.
pub trait ImageObserver: OutputSink + ProgressSink {
    /// A step begins.
    fn step_started(&mut self, step: &ImageStep);

    /// A step failed, and the build continues without it.
    fn step_skipped(&mut self, step: &ImageStep, error: &ImageError);

    /// The engine has an image that Nix built.
    fn image_loaded(&mut self, loaded: &LoadedImage);
}

impl ImageObserver for Discard {
    fn step_started(&mut self, _step: &ImageStep) {}

    fn step_skipped(&mut self, _step: &ImageStep, _error: &ImageError) {}

    fn image_loaded(&mut self, _loaded: &LoadedImage) {}
}

/// An image that the engine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsuredImage {
    /// The image.
    pub image: PlannedImage,
    /// What its base is built from. A Nix image has none.
    pub base: Option<PlannedBase>,
    /// The steps that were needed. Empty: the engine had the image.
    pub done: Vec<ImageStep>,
}

/// Plans and builds images with one engine.
#[derive(Clone)]
pub struct ImageBuilder {
    /// The engine that has the images.
    pub engine: Engine,
    /// Host programs, caches and clock.
    pub environment: BuildEnvironment,
}

impl ImageBuilder {
    /// Reads and hashes everything that the requested image is built from.
    pub async fn read(&self, request: &ImageRequest) -> Result<ImageRecipe, ImageError> {
        request.read(Some(&self.engine), &self.environment).await
    }

    /// Plans what must be done for the image. Nothing is built or pulled.
    pub async fn plan(&self, recipe: &ImageRecipe) -> Result<ImagePlan, ImageError> {
        let pulls = |base| {
            let now = self.environment.clock.now();
            self.environment.pulls(&self.engine).history(base, now)
        };
        let pulls = recipe.spec.mode.base().map(pulls);
        let state = self.inspect(&recipe.spec, pulls).await?;
        Ok(ImagePlan::new(&recipe.spec, &state))
    }

    /// Makes sure that the engine has the image under its tag. If that fails, nothing else is under the tag.
    pub async fn ensure(
        &self,
        recipe: &ImageRecipe,
        observer: &mut dyn ImageObserver,
    ) -> Result<EnsuredImage, ImageError> {
        let (mut done, plan) = self.pull_and_plan(recipe, observer).await?;
        let executor = PlanExecutor {
            builder: self,
            recipe,
        };
        executor.run(&plan, false, observer).await?;
        done.extend(plan.steps);
        Ok(EnsuredImage {
            image: plan.image,
            base: plan.base,
            done,
        })
    }

    /// Pulls the base if that is due, so that the plan is final. Returns the pull, if there was one, and the plan of what
    /// remains to be done.
    pub async fn pull_and_plan(
        &self,
        recipe: &ImageRecipe,
        observer: &mut dyn ImageObserver,
    ) -> Result<(Vec<ImageStep>, ImagePlan), ImageError> {
        let mut plan = self.plan(recipe).await?;
        if !plan.is_provisional() {
            return Ok((Vec::new(), plan));
        }
        let pull = plan.steps.remove(0);
        let executor = PlanExecutor {
            builder: self,
            recipe,
        };
        executor.pull(&pull, observer).await?;
        let plan = self.plan_after_pull(&recipe.spec).await?;
        Ok((vec![pull], plan))
    }

    /// Plans just after the base was pulled, or a pull failed.
    pub(super) async fn plan_after_pull(&self, spec: &ImageSpec) -> Result<ImagePlan, ImageError> {
        let state = self.inspect(spec, Some(PullHistory::JustTried)).await?;
        let plan = ImagePlan::new(spec, &state);
        match plan.steps.first().and_then(|step| step.pull_error(None)) {
            Some(error) => Err(error.into()),
            None => Ok(plan),
        }
    }

    /// The image under the planned tag, if it has the planned content.
    pub async fn find(&self, image: &PlannedImage) -> Result<Option<EngineImage>, EngineError> {
        let found = self.engine.image(&image.tag.to_string()).await?;
        Ok(found.filter(|found| found.labels.get(labels::HASH) == Some(&image.hash.hex())))
    }

    /// Asks the engine for the image and for its base. All our images are listed only if something is missing, to find
    /// out why.
    async fn inspect(
        &self,
        spec: &ImageSpec,
        pulls: Option<PullHistory>,
    ) -> Result<EngineState, EngineError> {
        let engine = &self.engine;
        let base = match (spec.mode.base(), pulls) {
            (Some(reference), Some(pulls)) => match engine.image(reference.as_str()).await? {
                Some(image) => Some(BaseImage {
                    identity: BaseIdentity::new(reference, &image.repo_digests, &diff_ids(&image)),
                    pulls,
                    platform: self.base_platform(&image, spec).await?,
                }),
                None => None,
            },
            _ => None,
        };
        let empty = EngineState::Engine {
            images: Vec::new(),
            base: base.clone(),
        };
        let complete = ImagePlan::new(spec, &empty);
        let tags: Vec<String> = complete.makes().map(|image| image.tag.to_string()).collect();
        let found = try_join_all(tags.iter().map(|tag| engine.image(tag))).await?;
        let is_complete = found.iter().all(Option::is_some);
        let mut images: Vec<EngineImage> = found.into_iter().flatten().collect();
        if !is_complete {
            images.extend(engine.images(Some(labels::HASH)).await?);
        }
        Ok(EngineState::Engine {
            images: images.iter().flat_map(tagged_images).collect(),
            base,
        })
    }

    /// The platform that a base is for, if it is known. With containerd, one name can have images for several platforms, and the
    /// engine shows that for its own.
    async fn base_platform(
        &self,
        image: &EngineImage,
        spec: &ImageSpec,
    ) -> Result<Option<String>, EngineError> {
        let is_shown = image.platform.as_deref() == Some(spec.platform.name())
            || spec.platform.unless_native(&self.engine).is_none()
            || self.engine.info().await?.store == ImageStore::GraphDriver;
        Ok(image.platform.clone().filter(|_| is_shown))
    }
}

impl ImageStep {
    /// The error of a pull that failed with `cause`, or that gave, although it succeeded, a base for another platform again.
    pub(super) fn pull_error(&self, cause: Option<EngineError>) -> Option<EngineError> {
        match (&self.action, &self.reason) {
            (ImageAction::PullBase { reference }, StepReason::OtherPlatform { found, wanted }) => {
                Some(EngineError::OtherPlatform {
                    image: reference.to_string(),
                    found: found.clone(),
                    wanted: wanted.name().to_owned(),
                    source: cause.map(Box::new),
                })
            }
            _ => cause,
        }
    }
}

/// An image once for each of its tags.
fn tagged_images(image: &EngineImage) -> impl Iterator<Item = TaggedImage> {
    image.repo_tags.iter().map(|tag| TaggedImage {
        tag: tag.strip_prefix(LOCAL_HOST).unwrap_or(tag).to_owned(),
        labels: image.labels.clone(),
        layers: diff_ids(image),
        platform: image.platform.clone(),
    })
}

fn diff_ids(image: &EngineImage) -> Vec<String> {
    image.diff_ids.iter().map(ToString::to_string).collect()
}
