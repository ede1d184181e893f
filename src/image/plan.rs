//! Decides what must be done so that an image is there. Reads nothing, starts nothing.

mod view;

use std::time::Duration;

use super::facts::{BaseIdentity, BaseImage, Facts, OwnImage, Pulls};
use super::labels::{self, Labels};
use super::project::ProjectLayer;
use super::reference::ImageReference;
use super::spec::{ImageSpec, Mode, Rebuild};
use super::tag::ImageTag;
use crate::digest::Digest;

/// A pull that failed is not tried again before this.
const RETRY_PULL_AFTER: Duration = Duration::from_secs(60 * 60);

/// What must be done, in order, so that an image is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The image that a sandbox starts from in the end.
    pub image: PlannedImage,
    /// What the base is built from. A Nix image starts from nothing.
    pub base: Option<PlannedBase>,
    /// The steps. None at all: the image is there.
    pub steps: Vec<Step>,
}

/// An image with its name and labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedImage {
    /// Its tag.
    pub tag: ImageTag,
    /// The hash of its content, of which the tag shows the beginning.
    pub hash: Digest,
    /// The labels to set.
    pub labels: Labels,
}

/// The image that a base is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBase {
    /// What it is called.
    pub reference: ImageReference,
    /// Which one it is at the moment.
    pub identity: BaseIdentity,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: Reason,
    /// What to do when it fails.
    pub on_failure: OnFailure,
}

/// What to do in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Pull the image that the base is built from. After it, plan again: only then is it known what it is.
    PullBase {
        /// Which one.
        reference: ImageReference,
    },
    /// Build the base from its Dockerfile.
    BuildBase {
        /// What comes of it.
        image: PlannedImage,
    },
    /// Build an attribute of the flake.
    NixBuild {
        /// The attribute.
        attribute: String,
        /// The system to build it for, as Nix writes it.
        system: &'static str,
    },
    /// Load what Nix built.
    Load {
        /// What comes of it.
        image: PlannedImage,
    },
    /// Build the project's layer, with the base's tag as `BASE_IMAGE`.
    BuildProject {
        /// What comes of it.
        image: PlannedImage,
        /// The base.
        base: ImageTag,
    },
}

/// What to do when a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Give up.
    Stop,
    /// Warn, and go on with what is there.
    GoOn,
}

/// Why a step must be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The user asked for it.
    RebuildAsked,
    /// No engine answers, so that nothing is known to be there.
    NoEngine,
    /// The image to build from is not there.
    BaseMissing,
    /// Ralph has never pulled the image to build from.
    NeverPulled,
    /// Ralph's last pull is too old.
    PulledLongAgo {
        /// How long ago it was.
        ago: Duration,
        /// How long ago it may be.
        limit: Duration,
    },
    /// There is no image of ours yet.
    FirstImage,
    /// There are images of ours, of other content.
    ContentChanged,
    /// The image under the tag does not carry the right content hash.
    NotOurs,
    /// The project's image stands on another build of the base.
    BaseRebuilt,
    /// An earlier step needs it.
    Follows,
}

/// Decides what must be done so that the image is there.
///
/// A plan that starts with a pull is [provisional](Plan::is_provisional).
#[must_use]
pub fn plan(spec: &ImageSpec, facts: &Facts) -> Plan {
    let base = planned_base(spec, facts);
    let base_image = base_image(spec, base.as_ref());
    let mut steps = Vec::from_iter(pull(spec, facts));
    let base_steps =
        || why_build(&base_image, spec, facts).map(|reason| base_steps(spec, &base_image, reason));
    let image = match spec.project() {
        None => {
            steps.extend(base_steps().into_iter().flatten());
            base_image
        }
        Some(layer) => {
            let image = project_image(spec, layer, &base_image);
            if let Some(reason) = why_build_project(&image, &base_image, spec, facts) {
                steps.extend(base_steps().into_iter().flatten());
                steps.push(project_step(&image, &base_image, reason));
            }
            image
        }
    };
    Plan { image, base, steps }
}

/// The images that an image stands on, the lowest first, and itself.
#[must_use]
pub fn parts(spec: &ImageSpec, facts: &Facts) -> Vec<PlannedImage> {
    let base = base_image(spec, planned_base(spec, facts).as_ref());
    let project = spec.project().map(|layer| project_image(spec, layer, &base));
    std::iter::once(base).chain(project).collect()
}

impl Plan {
    /// Whether the plan starts with a pull. Tag and later steps hold only if that brings nothing new, so whoever carries
    /// it out does the pull alone and plans again, with [`Pulls::JustTried`].
    #[must_use]
    pub fn is_provisional(&self) -> bool {
        let first = self.steps.first().map(|step| &step.action);
        matches!(first, Some(Action::PullBase { .. }))
    }

    /// The images that its steps make.
    pub(super) fn makes(&self) -> impl Iterator<Item = &PlannedImage> {
        self.steps.iter().filter_map(|step| match &step.action {
            Action::BuildBase { image } | Action::Load { image } | Action::BuildProject { image, .. } => {
                Some(image)
            }
            Action::PullBase { .. } | Action::NixBuild { .. } => None,
        })
    }
}

fn planned_base(spec: &ImageSpec, facts: &Facts) -> Option<PlannedBase> {
    let base = spec.mode().base()?;
    let identity = match facts {
        Facts::Engine {
            base: Some(image), ..
        } => image.identity.clone(),
        Facts::Engine { base: None, .. } | Facts::NoEngine => BaseIdentity::Unresolved,
    };
    Some(PlannedBase {
        reference: base.clone(),
        identity,
    })
}

fn base_image(spec: &ImageSpec, base: Option<&PlannedBase>) -> PlannedImage {
    let identity = base.map_or(&BaseIdentity::Unresolved, |base| &base.identity);
    let hash = spec.base_hash(identity);
    let base_label = base.map(|base| (labels::BASE, base.identity.to_string()));
    PlannedImage {
        tag: ImageTag::base(spec.agent(), &hash),
        hash,
        labels: common_labels(spec, &hash).chain(base_label).collect(),
    }
}

fn project_image(spec: &ImageSpec, layer: &ProjectLayer, base: &PlannedImage) -> PlannedImage {
    let hash = layer.hash(&base.tag);
    let base_label = base
        .labels
        .get(labels::BASE)
        .map(|base| (labels::BASE, base.to_owned()));
    let project_label = (labels::PROJECT, layer.name.to_string());
    PlannedImage {
        tag: ImageTag::project(spec.agent(), &layer.name, &hash),
        hash,
        labels: common_labels(spec, &hash)
            .chain(base_label)
            .chain([project_label])
            .collect(),
    }
}

fn common_labels(spec: &ImageSpec, hash: &Digest) -> impl Iterator<Item = (&'static str, String)> {
    let labels = [
        (labels::HASH, hash.hex()),
        (labels::AGENT, spec.agent().name.to_owned()),
        (labels::MODE, spec.mode().name().to_owned()),
        (labels::VERSION, env!("CARGO_PKG_VERSION").to_owned()),
    ];
    labels.into_iter()
}

/// The pull, where one is due. Without it there may be nothing to build from; then it must not fail.
fn pull(spec: &ImageSpec, facts: &Facts) -> Option<Step> {
    let base = spec.mode().base()?;
    let (reason, on_failure) = match facts {
        Facts::NoEngine => (Reason::NoEngine, OnFailure::Stop),
        Facts::Engine { base: None, .. } => (Reason::BaseMissing, OnFailure::Stop),
        Facts::Engine {
            base: Some(image), ..
        } => (why_pull(spec, base, image)?, OnFailure::GoOn),
    };
    let reference = base.clone();
    Some(Step {
        action: Action::PullBase { reference },
        reason,
        on_failure,
    })
}

fn why_pull(spec: &ImageSpec, reference: &ImageReference, image: &BaseImage) -> Option<Reason> {
    let Pulls::Earlier { succeeded, failed } = image.pulls else {
        return None;
    };
    if spec.when_to_build() == Rebuild::Always {
        return Some(Reason::RebuildAsked);
    }
    if reference.is_pinned() || failed.is_some_and(|ago| ago < RETRY_PULL_AFTER) {
        return None;
    }
    match (succeeded, &image.identity) {
        (Some(ago), _) => {
            let limit = spec.longest_pull_age();
            (ago > limit).then_some(Reason::PulledLongAgo { ago, limit })
        }
        (None, BaseIdentity::RepoDigest(_)) => Some(Reason::NeverPulled),
        // Made on this machine: no registry has it.
        (None, BaseIdentity::Layers(_) | BaseIdentity::Unresolved) => None,
    }
}

/// Why an image must be built; `None` when it is there.
fn why_build(image: &PlannedImage, spec: &ImageSpec, facts: &Facts) -> Option<Reason> {
    let Facts::Engine { images, .. } = facts else {
        return Some(Reason::NoEngine);
    };
    if spec.when_to_build() == Rebuild::Always {
        return Some(Reason::RebuildAsked);
    }
    if let Some(there) = find(&image.tag, images) {
        let is_ours = there.labels.get(labels::HASH) == Some(&*image.hash.hex());
        return (!is_ours).then_some(Reason::NotOurs);
    }
    let ours = format!("{}:", image.tag.repository());
    if images.iter().any(|image| image.tag.starts_with(&ours)) {
        Some(Reason::ContentChanged)
    } else {
        Some(Reason::FirstImage)
    }
}

/// As [`why_build`]; and a project's image must stand on the base that is there, if one is.
fn why_build_project(
    image: &PlannedImage,
    base: &PlannedImage,
    spec: &ImageSpec,
    facts: &Facts,
) -> Option<Reason> {
    let reason = why_build(image, spec, facts);
    if reason.is_some() {
        return reason;
    }
    let Facts::Engine { images, .. } = facts else {
        return None;
    };
    let (project, base) = (find(&image.tag, images)?, find(&base.tag, images)?);
    (!project.layers.starts_with(&base.layers)).then_some(Reason::BaseRebuilt)
}

fn find<'a>(tag: &ImageTag, images: &'a [OwnImage]) -> Option<&'a OwnImage> {
    let tag = tag.to_string();
    images.iter().find(|image| image.tag == tag)
}

fn base_steps(spec: &ImageSpec, image: &PlannedImage, reason: Reason) -> Vec<Step> {
    let image = image.clone();
    match spec.mode() {
        Mode::Dockerfile { .. } | Mode::File { .. } => {
            vec![Step::needed(Action::BuildBase { image }, reason)]
        }
        Mode::Nix { attribute, .. } => {
            let build = Action::NixBuild {
                attribute: attribute.clone(),
                system: spec.platform().nix_system().name(),
            };
            vec![
                Step::needed(build, reason),
                Step::needed(Action::Load { image }, Reason::Follows),
            ]
        }
    }
}

fn project_step(image: &PlannedImage, base: &PlannedImage, reason: Reason) -> Step {
    let action = Action::BuildProject {
        image: image.clone(),
        base: base.tag.clone(),
    };
    Step::needed(action, reason)
}

impl Step {
    fn needed(action: Action, reason: Reason) -> Self {
        Self {
            action,
            reason,
            on_failure: OnFailure::Stop,
        }
    }
}

#[cfg(test)]
mod tests;
