//! Builds an image twice from scratch, and compares the results.

use super::builder::{ImageBuilder, ImageObserver};
use super::difference::{ImageDifference, differences};
use super::error::ImageError;
use super::executor::PlanExecutor;
use super::fingerprint::ImageFingerprint;
use super::plan::{ImageAction, ImagePlan, PlannedBase, PlannedImage};
use super::registry::not_built;
use super::request::ImageRecipe;
use super::spec::{ImageSpec, Rebuild};
use crate::engine::{EngineError, EngineImage};

/// The result of building an image twice.
#[derive(Clone, Debug)]
pub struct RebuildCheck {
    /// The image.
    pub image: PlannedImage,
    /// What its base is built from.
    pub base: Option<PlannedBase>,
    /// The result of the first build.
    pub first: ImageFingerprint,
    /// The result of the second build.
    pub second: ImageFingerprint,
    /// The differences between the two. Empty: the build is reproducible.
    pub differences: Vec<ImageDifference>,
}

impl ImageBuilder {
    /// Builds an image twice, without caches and under temporary tags, which are removed afterwards.
    ///
    /// Nix compares by itself, and fails if two builds differ. It builds again what was built on this host: the image, and
    /// the packages in it that came from no binary cache.
    pub async fn check(
        &self,
        recipe: &ImageRecipe,
        observer: &mut dyn ImageObserver,
    ) -> Result<RebuildCheck, ImageError> {
        let (_, planned) = self.pull_and_plan(recipe, observer).await?;
        let from_scratch = ImageRecipe {
            spec: ImageSpec {
                rebuild: Rebuild::Always,
                ..recipe.spec.clone()
            },
            ..recipe.clone()
        };
        let check = CheckRun {
            plan: with_temporary_tags(self.plan_after_pull(&from_scratch.spec).await?),
            executor: PlanExecutor {
                builder: self,
                recipe: &from_scratch,
            },
        };
        let mut built = Vec::new();
        let compared = check.compare(&mut built, observer).await;
        let removed = check.remove(&built).await;
        let (first, second, differences) = compared?;
        removed?;
        Ok(RebuildCheck {
            image: planned.image,
            base: planned.base,
            first,
            second,
            differences,
        })
    }
}

struct CheckRun<'a> {
    plan: ImagePlan,
    executor: PlanExecutor<'a>,
}

impl CheckRun<'_> {
    /// Both builds use the same tags, because the tags are inputs of a build.
    async fn compare(
        &self,
        built: &mut Vec<EngineImage>,
        observer: &mut dyn ImageObserver,
    ) -> Result<(ImageFingerprint, ImageFingerprint, Vec<ImageDifference>), ImageError> {
        let first = self.build(false, built, observer).await?;
        let second = self.build(true, built, observer).await?;
        let differences = differences(&self.executor.builder.engine, &first, &second).await?;
        Ok((
            ImageFingerprint::new(&first),
            ImageFingerprint::new(&second),
            differences,
        ))
    }

    async fn build(
        &self,
        again: bool,
        built: &mut Vec<EngineImage>,
        observer: &mut dyn ImageObserver,
    ) -> Result<EngineImage, ImageError> {
        self.executor.run(&self.plan, again, observer).await?;
        for image in self.plan.makes() {
            let name = image.tag.to_string();
            let found = self.executor.builder.engine.image(&name).await?;
            built.push(found.ok_or(EngineError::NotFound { subject: name })?);
        }
        built
            .last()
            .cloned()
            .ok_or_else(|| not_built(&self.plan.image.tag))
    }

    /// Removes the temporary tags, and the images that have no other name.
    async fn remove(&self, built: &[EngineImage]) -> Result<(), EngineError> {
        let engine = &self.executor.builder.engine;
        for image in self.plan.makes() {
            engine.remove_image(&image.tag.to_string()).await?;
        }
        for image in built.iter().rev() {
            let id = image.id.to_string();
            let left = engine.image(&id).await?;
            if left.is_some_and(|image| image.repo_tags.is_empty()) {
                engine.remove_unused(&id).await?;
            }
        }
        Ok(())
    }
}

fn with_temporary_tags(mut plan: ImagePlan) -> ImagePlan {
    let suffix = format!("{:08x}", fastrand::u32(..));
    let rename = |image: &mut PlannedImage| image.tag = image.tag.temporary(&suffix);
    rename(&mut plan.image);
    for step in &mut plan.steps {
        match &mut step.action {
            ImageAction::BuildBase { image } | ImageAction::Load { image } => rename(image),
            ImageAction::BuildProject { image, base } => {
                rename(image);
                *base = base.temporary(&suffix);
            }
            ImageAction::PullBase { .. } | ImageAction::NixBuild { .. } => {}
        }
    }
    plan
}
