//! How things stand with an image, in a word.

use serde::Serialize;

use super::plan::{Action, Plan, PlannedImage, Reason};
use super::tag::ImageTag;

/// Whether a planned image is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is there.
    Present,
    /// There is one of its name that is not what is planned.
    Stale,
    /// There is none.
    Missing,
}

impl State {
    /// That of the image of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let reason = plan.steps.iter().find_map(|step| match &step.action {
            Action::PullBase { .. } if step.reason != Reason::BaseMissing => None,
            _ => Some(&step.reason),
        });
        match reason {
            None => Self::Present,
            Some(Reason::FirstImage | Reason::BaseMissing | Reason::NoEngine) => Self::Missing,
            Some(_) => Self::Stale,
        }
    }
}

/// What an image of ours is to a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A sandbox starts from it.
    Planned,
    /// The planned image stands on it.
    Base,
    /// It was one of these before something changed.
    Old,
    /// Another project's, or another agent's.
    Other,
}

impl Role {
    /// That of an image with this tag, where these are planned, the lowest first.
    #[must_use]
    pub fn of(tag: &ImageTag, planned: &[PlannedImage]) -> Self {
        let is_planned = |image: &PlannedImage| image.tag == *tag;
        if planned.last().is_some_and(is_planned) {
            Self::Planned
        } else if planned.iter().any(is_planned) {
            Self::Base
        } else if planned
            .iter()
            .any(|image| image.tag.repository() == tag.repository())
        {
            Self::Old
        } else {
            Self::Other
        }
    }
}
