//! How things stand with an image, in a word.

use serde::Serialize;

use super::plan::{Action, Plan, PlannedImage, Reason, Step};
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
        let is_unknown = |step: &Step| matches!(step.reason, Reason::BaseMissing | Reason::NoEngine);
        if plan.steps.iter().any(is_unknown) {
            return Self::Missing;
        }
        // The image itself is made last; what stands below it has reasons of its own.
        let reasons = plan.steps.iter().rev().filter_map(|step| match &step.action {
            Action::PullBase { .. } => None,
            _ => Some(&step.reason),
        });
        match reasons.into_iter().find(|reason| **reason != Reason::Follows) {
            None => Self::Present,
            Some(Reason::FirstImage) => Self::Missing,
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::digest::Digest;
    use crate::image::labels::Labels;
    use crate::image::plan::OnFailure;
    use crate::image::reference::ImageReference;

    const BASE: &str = "agent-loop-sandbox-claude:v00000001";
    const PROJECT: &str = "agent-loop-sandbox-claude-app:v00000002";

    fn image(tag: &str) -> PlannedImage {
        PlannedImage {
            tag: ImageTag::at_end_of(tag).unwrap(),
            hash: Digest::sha256(tag.as_bytes()),
            labels: Labels::default(),
        }
    }

    fn step(name: &str, reason: Reason) -> Step {
        let action = match name {
            "pull" => Action::PullBase {
                reference: ImageReference::parse("debian:12").unwrap(),
            },
            "base" => Action::BuildBase { image: image(BASE) },
            "nix" => Action::NixBuild {
                attribute: "dockerImage".to_owned(),
                system: "x86_64-linux",
            },
            "load" => Action::Load { image: image(BASE) },
            "project" => Action::BuildProject {
                image: image(PROJECT),
                base: image(BASE).tag,
            },
            other => panic!("{other} is no step"),
        };
        Step {
            action,
            reason,
            on_failure: OnFailure::Stop,
        }
    }

    #[rstest]
    #[case::nothing_to_do([], State::Present)]
    #[case::only_a_pull([("pull", Reason::NeverPulled)], State::Present)]
    #[case::the_first([("base", Reason::FirstImage), ("project", Reason::FirstImage)], State::Missing)]
    #[case::the_first_on_a_base_that_is_there([("project", Reason::FirstImage)], State::Missing)]
    #[case::the_first_on_a_base_that_changed(
        [("base", Reason::ContentChanged), ("project", Reason::FirstImage)],
        State::Missing
    )]
    #[case::changed([("project", Reason::ContentChanged)], State::Stale)]
    #[case::changed_on_a_base_that_is_gone(
        [("base", Reason::FirstImage), ("project", Reason::ContentChanged)],
        State::Stale
    )]
    #[case::anothers_under_its_name([("base", Reason::NotOurs)], State::Stale)]
    #[case::on_another_build_of_its_base([("project", Reason::BaseRebuilt)], State::Stale)]
    #[case::changed_after_an_old_pull(
        [("pull", Reason::NeverPulled), ("base", Reason::ContentChanged)],
        State::Stale
    )]
    #[case::by_nix_the_first([("nix", Reason::FirstImage), ("load", Reason::Follows)], State::Missing)]
    #[case::by_nix_changed([("nix", Reason::ContentChanged), ("load", Reason::Follows)], State::Stale)]
    #[case::on_a_base_that_is_not_known(
        [("pull", Reason::BaseMissing), ("base", Reason::ContentChanged)],
        State::Missing
    )]
    #[case::where_nothing_is_known([("pull", Reason::NoEngine), ("base", Reason::NoEngine)], State::Missing)]
    fn the_state_is_that_of_the_planned_image<const N: usize>(
        #[case] steps: [(&str, Reason); N],
        #[case] expected: State,
    ) {
        let plan = Plan {
            image: image(PROJECT),
            base: None,
            steps: steps.map(|(name, reason)| step(name, reason)).to_vec(),
        };
        assert_eq!(State::of(&plan), expected);
    }

    #[rstest]
    #[case::a_sandbox_starts_from_it(PROJECT, &[BASE, PROJECT], Role::Planned)]
    #[case::it_stands_below(BASE, &[BASE, PROJECT], Role::Base)]
    #[case::without_a_project_the_base_is_planned(BASE, &[BASE], Role::Planned)]
    #[case::an_older_one("agent-loop-sandbox-claude-app:v00000009", &[BASE, PROJECT], Role::Old)]
    #[case::an_older_base("agent-loop-sandbox-claude:v00000009", &[BASE, PROJECT], Role::Old)]
    #[case::another_project("agent-loop-sandbox-claude-app2:v00000002", &[BASE, PROJECT], Role::Other)]
    #[case::another_agent("agent-loop-sandbox-codex:v00000001", &[BASE, PROJECT], Role::Other)]
    #[case::a_project_where_none_is_planned(PROJECT, &[BASE], Role::Other)]
    fn the_role_is_that_in_what_is_planned(
        #[case] tag: &str,
        #[case] planned: &[&str],
        #[case] expected: Role,
    ) {
        let planned: Vec<PlannedImage> = planned.iter().map(|tag| image(tag)).collect();
        assert_eq!(Role::of(&ImageTag::at_end_of(tag).unwrap(), &planned), expected);
    }
}
