//! The state of a project's image, and of the other images of ralph.

use schemars::JsonSchema;
use serde::Serialize;

use super::builder::ImageBuilder;
use super::error::ImageError;
use super::local_images::LocalImage;
use super::plan::{ImageAction, ImagePlan, ImageStep, PlannedImage, StepReason};
use super::request::ImageRecipe;
use super::tag::ImageTag;

/// The planned image, its state, and all images of ralph in the engine.
#[derive(Clone, Debug)]
pub struct ImageStatus {
    /// The plan. Its steps say what remains to be done.
    pub plan: ImagePlan,
    /// Whether the engine has the planned image.
    pub state: ImageState,
    /// All images of ralph, by tag.
    pub images: Vec<(LocalImage, ImageRole)>,
}

impl ImageBuilder {
    /// The state of an image. Nothing is built or pulled.
    pub async fn status(&self, recipe: &ImageRecipe) -> Result<ImageStatus, ImageError> {
        let plan = self.plan(recipe).await?;
        let images = self.images().await?.into_iter().map(|image| {
            let role = ImageRole::new(&image.tag, plan.images());
            (image, role)
        });
        Ok(ImageStatus {
            state: ImageState::new(&plan),
            images: images.collect(),
            plan,
        })
    }
}

/// Whether the engine has a planned image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageState {
    /// It has.
    Present,
    /// It has one with other content.
    Stale,
    /// It has none.
    Missing,
}

impl ImageState {
    /// The state of the planned image.
    #[must_use]
    pub fn new(plan: &ImagePlan) -> Self {
        let is_unknown = |step: &ImageStep| match step.reason {
            StepReason::BaseMissing | StepReason::NoEngine => true,
            StepReason::OtherPlatform { .. } => matches!(step.action, ImageAction::PullBase { .. }),
            _ => false,
        };
        if plan.steps.iter().any(is_unknown) {
            return Self::Missing;
        }
        // The image itself is built last. The images below it have reasons of their own.
        let reasons = plan.steps.iter().rev().filter_map(|step| match &step.action {
            ImageAction::PullBase { .. } => None,
            _ => Some(&step.reason),
        });
        match reasons.into_iter().find(|reason| **reason != StepReason::Follows) {
            None => Self::Present,
            Some(StepReason::FirstImage) => Self::Missing,
            Some(_) => Self::Stale,
        }
    }
}

/// The role of an image in a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageRole {
    /// Sandboxes start from it.
    Planned,
    /// The planned image is built on it.
    Base,
    /// An earlier version of one of these.
    Old,
    /// It belongs to another project or agent.
    Other,
}

impl ImageRole {
    /// The role of the image with this tag. `planned` is lowest first.
    #[must_use]
    pub fn new<'a>(tag: &ImageTag, planned: impl Iterator<Item = &'a PlannedImage>) -> Self {
        let planned: Vec<&ImageTag> = planned.map(|image| &image.tag).collect();
        if planned.last() == Some(&tag) {
            Self::Planned
        } else if planned.contains(&tag) {
            Self::Base
        } else if planned.iter().any(|other| other.repository() == tag.repository()) {
            Self::Old
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::digest::Digest;
    use crate::image::plan::OnFailure;
    use crate::image::reference::ImageReference;

    const BASE: &str = "agent-loop-sandbox-claude:v00000001";
    const PROJECT: &str = "agent-loop-sandbox-claude-app:v00000002";

    fn image(tag: &str) -> PlannedImage {
        PlannedImage {
            tag: ImageTag::at_end_of(tag).unwrap(),
            hash: Digest::sha256(tag.as_bytes()),
            labels: std::collections::BTreeMap::new(),
        }
    }

    fn step(name: &str, reason: StepReason) -> ImageStep {
        let action = match name {
            "pull" => ImageAction::PullBase {
                reference: ImageReference::parse("debian:12").unwrap(),
            },
            "base" => ImageAction::BuildBase { image: image(BASE) },
            "nix" => ImageAction::NixBuild {
                attribute: "dockerImage".to_owned(),
                system: "x86_64-linux",
            },
            "load" => ImageAction::Load { image: image(BASE) },
            "project" => ImageAction::BuildProject {
                image: image(PROJECT),
                base: image(BASE).tag,
            },
            other => panic!("{other} is not a step"),
        };
        ImageStep {
            action,
            reason,
            on_failure: OnFailure::Stop,
        }
    }

    #[rstest]
    #[case::nothing_to_do([], ImageState::Present)]
    #[case::only_a_pull([("pull", StepReason::NeverPulled)], ImageState::Present)]
    #[case::the_first([("base", StepReason::FirstImage), ("project", StepReason::FirstImage)], ImageState::Missing)]
    #[case::the_first_on_a_base_that_is_there([("project", StepReason::FirstImage)], ImageState::Missing)]
    #[case::the_first_on_a_base_that_changed(
        [("base", StepReason::ContentChanged), ("project", StepReason::FirstImage)],
        ImageState::Missing
    )]
    #[case::changed([("project", StepReason::ContentChanged)], ImageState::Stale)]
    #[case::changed_on_a_base_that_is_gone(
        [("base", StepReason::FirstImage), ("project", StepReason::ContentChanged)],
        ImageState::Stale
    )]
    #[case::anothers_under_its_name([("base", StepReason::HashMismatch)], ImageState::Stale)]
    #[case::on_another_build_of_its_base([("project", StepReason::BaseRebuilt)], ImageState::Stale)]
    #[case::changed_after_an_old_pull(
        [("pull", StepReason::NeverPulled), ("base", StepReason::ContentChanged)],
        ImageState::Stale
    )]
    #[case::by_nix_the_first([("nix", StepReason::FirstImage), ("load", StepReason::Follows)], ImageState::Missing)]
    #[case::by_nix_changed([("nix", StepReason::ContentChanged), ("load", StepReason::Follows)], ImageState::Stale)]
    #[case::on_a_base_that_is_not_known(
        [("pull", StepReason::BaseMissing), ("base", StepReason::ContentChanged)],
        ImageState::Missing
    )]
    #[case::where_nothing_is_known([("pull", StepReason::NoEngine), ("base", StepReason::NoEngine)], ImageState::Missing)]
    fn the_state_is_that_of_the_planned_image<const N: usize>(
        #[case] steps: [(&str, StepReason); N],
        #[case] expected: ImageState,
    ) {
        let plan = ImagePlan {
            image: image(PROJECT),
            below: None,
            base: None,
            steps: steps.map(|(name, reason)| step(name, reason)).to_vec(),
        };
        assert_eq!(ImageState::new(&plan), expected);
    }

    #[rstest]
    #[case::a_sandbox_starts_from_it(PROJECT, &[BASE, PROJECT], ImageRole::Planned)]
    #[case::it_stands_below(BASE, &[BASE, PROJECT], ImageRole::Base)]
    #[case::without_a_project_the_base_is_planned(BASE, &[BASE], ImageRole::Planned)]
    #[case::an_older_one("agent-loop-sandbox-claude-app:v00000009", &[BASE, PROJECT], ImageRole::Old)]
    #[case::an_older_base("agent-loop-sandbox-claude:v00000009", &[BASE, PROJECT], ImageRole::Old)]
    #[case::another_project("agent-loop-sandbox-claude-app2:v00000002", &[BASE, PROJECT], ImageRole::Other)]
    #[case::another_agent("agent-loop-sandbox-codex:v00000001", &[BASE, PROJECT], ImageRole::Other)]
    #[case::a_project_where_none_is_planned(PROJECT, &[BASE], ImageRole::Other)]
    fn the_role_is_that_in_what_is_planned(
        #[case] tag: &str,
        #[case] planned: &[&str],
        #[case] expected: ImageRole,
    ) {
        let planned: Vec<PlannedImage> = planned.iter().map(|tag| image(tag)).collect();
        assert_eq!(
            ImageRole::new(&ImageTag::at_end_of(tag).unwrap(), planned.iter()),
            expected
        );
    }
}
