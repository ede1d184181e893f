//! Builds an image twice, from scratch, and compares.

use super::difference::{Difference, differences};
use super::ensure::{Observer, Pass, Workshop, settle};
use super::error::ImageError;
use super::fingerprint::Fingerprint;
use super::plan::{Action, Plan, PlannedBase, PlannedImage, plan};
use super::spec::Rebuild;
use super::survey::survey_after_pull;
use super::tools::Tools;
use super::wish::Recipe;
use crate::engine::{Engine, EngineError, EngineImage};

/// What came of building an image twice.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The image that was meant.
    pub image: PlannedImage,
    /// What its base is built from.
    pub base: Option<PlannedBase>,
    /// What the first build gave.
    pub first: Fingerprint,
    /// What the second build gave.
    pub second: Fingerprint,
    /// In what they differ. Nothing: each build gives the same image.
    pub differences: Vec<Difference>,
}

/// Builds an image twice, with nothing taken over from earlier builds, under names that nobody uses. Both are gone
/// afterwards, and the image under our tag is as it was.
///
/// Nix compares by itself, and fails where its two builds differ. It builds the image again, and not what is in it.
pub async fn check(
    engine: &Engine,
    recipe: &Recipe,
    tools: &Tools,
    observer: &mut dyn Observer,
) -> Result<Checked, ImageError> {
    let settled = settle(engine, recipe, tools, observer).await?;
    let from_scratch = Recipe {
        spec: recipe.spec.clone().rebuild(Rebuild::Always),
        ..recipe.clone()
    };
    let facts = survey_after_pull(engine, &from_scratch.spec).await?;
    let bench = Bench {
        engine,
        plan: aside(plan(&from_scratch.spec, &facts)),
        workshop: Workshop::new(engine, &from_scratch, tools),
    };
    let mut made = Vec::new();
    let compared = bench.compare(&mut made, observer).await;
    let cleared = bench.clear(&made).await;
    let (first, second, differences) = compared?;
    cleared?;
    Ok(Checked {
        image: settled.image,
        base: settled.base,
        first,
        second,
        differences,
    })
}

/// Where an image is built twice.
struct Bench<'a> {
    engine: &'a Engine,
    plan: Plan,
    workshop: Workshop<'a>,
}

impl Bench<'_> {
    /// Both builds have the same names: what a build is told must not differ.
    async fn compare(
        &self,
        made: &mut Vec<EngineImage>,
        observer: &mut dyn Observer,
    ) -> Result<(Fingerprint, Fingerprint, Vec<Difference>), ImageError> {
        let first = self.build(Pass::First, made, observer).await?;
        let second = self.build(Pass::Again, made, observer).await?;
        let differences = differences(self.engine, &first, &second).await?;
        Ok((Fingerprint::of(&first), Fingerprint::of(&second), differences))
    }

    async fn build(
        &self,
        pass: Pass,
        made: &mut Vec<EngineImage>,
        observer: &mut dyn Observer,
    ) -> Result<EngineImage, ImageError> {
        self.workshop.carry_out(pass, &self.plan, observer).await?;
        for image in self.plan.makes() {
            let name = image.tag.to_string();
            let found = self.engine.image(&name).await?;
            made.push(found.ok_or(EngineError::NotFound { subject: name })?);
        }
        made.last().cloned().ok_or_else(|| ImageError::NotBuilt {
            tag: self.plan.image.tag.clone(),
        })
    }

    /// Removes the names, and what is left without any. Where the engine had this very image before, it has other names.
    async fn clear(&self, made: &[EngineImage]) -> Result<(), EngineError> {
        for image in self.plan.makes() {
            self.engine.remove_image(&image.tag.to_string()).await?;
        }
        for image in made.iter().rev() {
            let left = self.engine.image(&image.id.to_string()).await?;
            if left.is_some_and(|image| image.repo_tags.is_empty()) {
                self.engine.remove_unused(&image.id.to_string()).await?;
            }
        }
        Ok(())
    }
}

/// The same plan under names that nobody uses.
fn aside(mut plan: Plan) -> Plan {
    let mark = format!("{:08x}", fastrand::u32(..));
    let rename = |image: &mut PlannedImage| image.tag = image.tag.aside(&mark);
    rename(&mut plan.image);
    for step in &mut plan.steps {
        match &mut step.action {
            Action::BuildBase { image } | Action::Load { image } => rename(image),
            Action::BuildProject { image, base } => {
                rename(image);
                *base = base.aside(&mark);
            }
            Action::PullBase { .. } | Action::NixBuild { .. } => {}
        }
    }
    plan
}
