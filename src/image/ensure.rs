//! Sees to it that an image is there: plans, and does what the plan says.

mod workshop;

use super::error::ImageError;
use super::load::Loaded;
use super::plan::{PlannedBase, PlannedImage, Step, plan};
use super::survey::{survey, survey_after_pull};
use super::tools::Tools;
use super::wish::Recipe;
use crate::engine::{Engine, ProgressSink};
use crate::exec::{Discard, OutputSink};
use workshop::Workshop;

/// Watches an image being made: its steps, and what builders and engines report meanwhile.
pub trait Observer: OutputSink + ProgressSink {
    /// A step begins.
    fn begins(&mut self, step: &Step);

    /// A step failed, and things go on without it.
    fn goes_on(&mut self, step: &Step, error: &ImageError);

    /// An image that Nix built is in the engine.
    fn loaded(&mut self, loaded: &Loaded);
}

impl Observer for Discard {
    fn begins(&mut self, _step: &Step) {}

    fn goes_on(&mut self, _step: &Step, _error: &ImageError) {}

    fn loaded(&mut self, _loaded: &Loaded) {}
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
    let workshop = Workshop {
        engine,
        recipe,
        tools,
    };
    let spec = &recipe.spec;
    let mut plan_now = plan(spec, &survey(engine, spec, tools).await?);
    let mut done = Vec::new();
    if plan_now.is_provisional() {
        let pull = plan_now.steps.remove(0);
        workshop.pull(&pull, observer).await?;
        done.push(pull);
        plan_now = plan(spec, &survey_after_pull(engine, spec).await?);
    }
    workshop.carry_out(&plan_now, observer).await?;
    done.extend(plan_now.steps);
    Ok(Ensured {
        image: plan_now.image,
        base: plan_now.base,
        done,
    })
}
