//! Sees to it that an image is there: plans, and does what the plan says.

mod workshop;

use super::error::ImageError;
use super::load::LoadedImage;
use super::plan::{Plan, PlannedBase, PlannedImage, Step, plan};
use super::survey::{survey, survey_after_pull};
use super::tools::Tools;
use super::wish::Recipe;
use crate::engine::{Engine, ProgressSink};
use crate::exec::{Discard, OutputSink};
pub(super) use workshop::{Pass, Workshop};

/// Watches an image being made: its steps, and what builders and engines report meanwhile.
pub trait Observer: OutputSink + ProgressSink {
    /// A step begins.
    fn begins(&mut self, step: &Step);

    /// A step failed, and things go on without it.
    fn goes_on(&mut self, step: &Step, error: &ImageError);

    /// An image that Nix built is in the engine.
    fn loaded(&mut self, loaded: &LoadedImage);
}

impl Observer for Discard {
    fn begins(&mut self, _step: &Step) {}

    fn goes_on(&mut self, _step: &Step, _error: &ImageError) {}

    fn loaded(&mut self, _loaded: &LoadedImage) {}
}

/// An image that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ensured {
    /// The image.
    pub image: PlannedImage,
    /// What its base is built from. A Nix image starts from nothing.
    pub base: Option<PlannedBase>,
    /// What was done. Nothing: it was there.
    pub done: Vec<Step>,
}

/// Sees to it that the image is there, under its tag. Whatever fails, nothing else is under that tag.
pub async fn ensure(
    engine: &Engine,
    recipe: &Recipe,
    tools: &Tools,
    observer: &mut dyn Observer,
) -> Result<Ensured, ImageError> {
    let (mut done, plan) = settled(engine, recipe, tools, observer).await?;
    let workshop = Workshop::new(engine, recipe, tools);
    workshop.carry_out(Pass::First, &plan, observer).await?;
    done.extend(plan.steps);
    Ok(Ensured {
        image: plan.image,
        base: plan.base,
        done,
    })
}

/// Does the pull that a plan starts with, where one is due, so that it is sure which image is planned. What remains to be
/// done is the plan that is returned.
pub async fn settle(
    engine: &Engine,
    recipe: &Recipe,
    tools: &Tools,
    observer: &mut dyn Observer,
) -> Result<Plan, ImageError> {
    Ok(settled(engine, recipe, tools, observer).await?.1)
}

/// As [`settle`], with what was done.
async fn settled(
    engine: &Engine,
    recipe: &Recipe,
    tools: &Tools,
    observer: &mut dyn Observer,
) -> Result<(Vec<Step>, Plan), ImageError> {
    let spec = &recipe.spec;
    let mut planned = plan(spec, &survey(engine, spec, tools).await?);
    if !planned.is_provisional() {
        return Ok((Vec::new(), planned));
    }
    let pull = planned.steps.remove(0);
    let workshop = Workshop::new(engine, recipe, tools);
    workshop.pull(&pull, observer).await?;
    let planned = plan(spec, &survey_after_pull(engine, spec).await?);
    Ok((vec![pull], planned))
}
