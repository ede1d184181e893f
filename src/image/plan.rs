//! Decides what must be done so that an engine has an image. No I/O.

mod display;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::engine_state::{BaseIdentity, BaseImage, EngineState, PullHistory, TaggedImage};
use super::labels;
use super::platform::Platform;
use super::project::ProjectLayer;
use super::reference::ImageReference;
use super::spec::{BuildMode, ImageSpec, Rebuild};
use super::tag::ImageTag;
use crate::digest::Digest;
use display::PlanSummary;

/// A failed pull is not retried earlier.
const RETRY_PULL_AFTER: Duration = Duration::from_secs(60 * 60);

/// What must be done, in order, so that an engine has an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "PlanSummary")]
pub struct ImagePlan {
    /// The image that a sandbox starts from.
    pub image: PlannedImage,
    /// The image below it, if it is a project's image.
    pub below: Option<PlannedImage>,
    /// The image that the base is built from. A Nix image has none.
    pub base: Option<PlannedBase>,
    /// The steps. Empty: the engine has the image.
    pub steps: Vec<ImageStep>,
}

/// An image with its tag and labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedImage {
    /// Its tag.
    pub tag: ImageTag,
    /// The hash of its content. The tag shows its first digits.
    pub hash: Digest,
    /// The labels to set.
    pub labels: BTreeMap<String, String>,
}

/// The image that a base is built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedBase {
    /// Its name.
    #[schemars(with = "String")]
    pub reference: ImageReference,
    /// Its current content.
    #[schemars(with = "String")]
    pub identity: BaseIdentity,
}

/// A Dockerfile that an image is built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedDockerfile {
    /// The tag of the image.
    pub tag: ImageTag,
    /// The build argument `BASE_IMAGE`, if there is one.
    pub base: Option<String>,
    /// The content of the Dockerfile.
    pub text: String,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ImageStep {
    /// What to do.
    #[serde(flatten)]
    pub action: ImageAction,
    /// Why.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub reason: StepReason,
    /// What to do when it fails.
    pub on_failure: OnFailure,
}

/// What to do in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum ImageAction {
    /// Pull the image that the base is built from. Its content is known only then, so plan again.
    PullBase {
        /// The image to pull.
        #[schemars(with = "String")]
        reference: ImageReference,
    },
    /// Build the base from its Dockerfile.
    BuildBase {
        /// The result.
        #[serde(rename = "tag", serialize_with = "as_tag")]
        #[schemars(with = "ImageTag")]
        image: PlannedImage,
    },
    /// Build an attribute of the flake.
    NixBuild {
        /// The attribute.
        attribute: String,
        /// The system to build it for, as Nix names it.
        system: &'static str,
    },
    /// Load the result of a Nix build.
    Load {
        /// The result.
        #[serde(rename = "tag", serialize_with = "as_tag")]
        #[schemars(with = "ImageTag")]
        image: PlannedImage,
    },
    /// Build the project's image, with the base's tag as `BASE_IMAGE`.
    BuildProject {
        /// The result.
        #[serde(rename = "tag", serialize_with = "as_tag")]
        #[schemars(with = "ImageTag")]
        image: PlannedImage,
        /// The base.
        base: ImageTag,
    },
}

/// What to do when a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Fail.
    Stop,
    /// Warn, and continue with the image that the engine has.
    GoOn,
}

/// Why a step is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepReason {
    /// The user asked for a rebuild.
    RebuildRequested,
    /// No engine answers, so it is unknown which images exist.
    NoEngine,
    /// The engine does not have the image that the base is built from.
    BaseMissing,
    /// The engine has the image for another platform.
    OtherPlatform {
        /// The platform that it is for.
        found: String,
        /// The platform that is needed.
        wanted: Platform,
    },
    /// Ralph has never pulled that image.
    NeverPulled,
    /// Ralph's last pull of it is too old.
    PulledLongAgo {
        /// How long ago it was.
        ago: Duration,
        /// How long ago it may be.
        limit: Duration,
    },
    /// The engine has no image of this repository.
    FirstImage,
    /// The engine has only images with other content.
    ContentChanged,
    /// The image under the tag has another content hash.
    HashMismatch,
    /// The project's image was built on another build of the base.
    BaseRebuilt,
    /// The step before it built a new image.
    Follows,
}

impl ImagePlan {
    /// Decides what must be done so that the engine has the image.
    ///
    /// A plan that starts with a pull is [provisional](ImagePlan::is_provisional).
    #[must_use]
    pub fn new(spec: &ImageSpec, state: &EngineState) -> Self {
        let base = planned_base(spec, state);
        let base_image = base_image(spec, base.as_ref());
        let mut steps = Vec::new();
        let base_steps =
            || why_build(&base_image, spec, state).map(|reason| base_steps(spec, &base_image, reason));
        let (image, below) = match &spec.project {
            None => {
                steps.extend(base_steps().into_iter().flatten());
                (base_image, None)
            }
            Some(layer) => {
                let image = project_image(spec, layer, &base_image);
                if let Some(reason) = why_build_project(&image, &base_image, spec, state) {
                    steps.extend(base_steps().into_iter().flatten());
                    let action = ImageAction::BuildProject {
                        image: image.clone(),
                        base: base_image.tag.clone(),
                    };
                    steps.push(ImageStep::needed(action, reason));
                }
                (image, Some(base_image))
            }
        };
        let pull = pull(spec, state, !steps.is_empty());
        steps.splice(0..0, pull);
        Self {
            image,
            below,
            base,
            steps,
        }
    }

    /// Whether the plan starts with a pull. The pull may change the tag and the later steps, so only the pull is run, and
    /// then planned again with [`PullHistory::JustTried`].
    #[must_use]
    pub fn is_provisional(&self) -> bool {
        let first = self.steps.first().map(|step| &step.action);
        matches!(first, Some(ImageAction::PullBase { .. }))
    }

    /// The planned image and the one below it.
    pub fn images(&self) -> impl Iterator<Item = &PlannedImage> {
        self.below.iter().chain([&self.image])
    }

    /// The Dockerfiles of the planned images, also of those that the engine has. A Nix image has none.
    #[must_use]
    pub fn dockerfiles(&self, spec: &ImageSpec) -> Vec<PlannedDockerfile> {
        let base = self.below.as_ref().unwrap_or(&self.image);
        let (argument, text) = match &spec.mode {
            BuildMode::Template { dockerfile, .. } => (None, Some(dockerfile)),
            BuildMode::Dockerfile { base, file } => (Some(base.to_string()), Some(&file.text)),
            BuildMode::Nix { .. } => (None, None),
        };
        let of_base = text.map(|text| PlannedDockerfile {
            tag: base.tag.clone(),
            base: argument,
            text: text.clone(),
        });
        let of_project = spec.project.as_ref().map(|layer| PlannedDockerfile {
            tag: self.image.tag.clone(),
            base: Some(base.tag.to_string()),
            text: layer.file.text.clone(),
        });
        of_base.into_iter().chain(of_project).collect()
    }

    /// The images that its steps build or load.
    pub(super) fn makes(&self) -> impl Iterator<Item = &PlannedImage> {
        self.steps.iter().filter_map(|step| match &step.action {
            ImageAction::BuildBase { image }
            | ImageAction::Load { image }
            | ImageAction::BuildProject { image, .. } => Some(image),
            ImageAction::PullBase { .. } | ImageAction::NixBuild { .. } => None,
        })
    }
}

fn planned_base(spec: &ImageSpec, state: &EngineState) -> Option<PlannedBase> {
    let base = spec.mode.base()?;
    let identity = match state {
        EngineState::Engine {
            base: Some(image), ..
        } => image.identity.clone(),
        EngineState::Engine { base: None, .. } | EngineState::NoEngine => BaseIdentity::Unresolved,
    };
    Some(PlannedBase {
        reference: base.clone(),
        identity,
    })
}

fn base_image(spec: &ImageSpec, base: Option<&PlannedBase>) -> PlannedImage {
    let identity = base.map_or(&BaseIdentity::Unresolved, |base| &base.identity);
    let hash = spec.base_hash(identity);
    let mut labels = BTreeMap::from([
        (labels::HASH.to_owned(), hash.hex()),
        (labels::AGENT.to_owned(), spec.agent.name.to_owned()),
        (labels::MODE.to_owned(), spec.mode.name().to_owned()),
        (labels::VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    if let Some(base) = base {
        labels.insert(labels::BASE.to_owned(), base.identity.to_string());
    }
    PlannedImage {
        tag: ImageTag::base(spec.agent, &hash),
        hash,
        labels,
    }
}

fn project_image(spec: &ImageSpec, layer: &ProjectLayer, base: &PlannedImage) -> PlannedImage {
    let hash = layer.hash(&base.tag);
    let mut labels = base.labels.clone();
    labels.insert(labels::HASH.to_owned(), hash.hex());
    labels.insert(labels::PROJECT.to_owned(), layer.name.to_string());
    PlannedImage {
        tag: ImageTag::project(spec.agent, &layer.name, &hash),
        hash,
        labels,
    }
}

/// The pull, if one is due. It must succeed if the engine does not have the base, or not for the platform that is required.
fn pull(spec: &ImageSpec, state: &EngineState, builds: bool) -> Option<ImageStep> {
    let base = spec.mode.base()?;
    let (reason, on_failure) = match state {
        EngineState::NoEngine => (StepReason::NoEngine, OnFailure::Stop),
        EngineState::Engine { base: None, .. } => (StepReason::BaseMissing, OnFailure::Stop),
        EngineState::Engine {
            base: Some(image), ..
        } => match other_platform(image.platform.as_ref(), spec) {
            Some(reason) if spec.requires_platform => (reason, OnFailure::Stop),
            other => (
                why_pull(spec, base, image, other.filter(|_| builds))?,
                OnFailure::GoOn,
            ),
        },
    };
    let reference = base.clone();
    Some(ImageStep {
        action: ImageAction::PullBase { reference },
        reason,
        on_failure,
    })
}

/// Why the base must be pulled. `other_platform` is a reason if a registry has the base.
fn why_pull(
    spec: &ImageSpec,
    reference: &ImageReference,
    image: &BaseImage,
    other_platform: Option<StepReason>,
) -> Option<StepReason> {
    let PullHistory::Earlier { succeeded, failed } = image.pulls else {
        return None;
    };
    if spec.rebuild == Rebuild::Always {
        return Some(StepReason::RebuildRequested);
    }
    if reference.is_pinned() || failed.is_some_and(|ago| ago < RETRY_PULL_AFTER) {
        return None;
    }
    match (succeeded, &image.identity) {
        (_, BaseIdentity::RepoDigest(_)) if other_platform.is_some() => other_platform,
        (Some(ago), _) => {
            let limit = spec.refresh_after;
            (ago > limit).then_some(StepReason::PulledLongAgo { ago, limit })
        }
        (None, BaseIdentity::RepoDigest(_)) => Some(StepReason::NeverPulled),
        // It was built on the host, and no registry has it.
        (None, BaseIdentity::Layers(_) | BaseIdentity::Unresolved) => None,
    }
}

fn other_platform(found: Option<&String>, spec: &ImageSpec) -> Option<StepReason> {
    let wanted = spec.platform;
    let found = found.filter(|found| *found != wanted.name())?.clone();
    Some(StepReason::OtherPlatform { found, wanted })
}

/// Why an image must be built; `None` if the engine has it.
fn why_build(image: &PlannedImage, spec: &ImageSpec, state: &EngineState) -> Option<StepReason> {
    let EngineState::Engine { images, .. } = state else {
        return Some(StepReason::NoEngine);
    };
    if spec.rebuild == Rebuild::Always {
        return Some(StepReason::RebuildRequested);
    }
    if let Some(found) = find(&image.tag, images) {
        let has_hash = found.labels.get(labels::HASH) == Some(&image.hash.hex());
        let mismatch = (!has_hash).then_some(StepReason::HashMismatch);
        return mismatch
            .or_else(|| other_platform(found.platform.as_ref(), spec).filter(|_| spec.requires_platform));
    }
    let repository = format!("{}:", image.tag.repository());
    if images.iter().any(|image| image.tag.starts_with(&repository)) {
        Some(StepReason::ContentChanged)
    } else {
        Some(StepReason::FirstImage)
    }
}

/// Like [`why_build`]. A project's image must also be built on the base that the engine has, if it has one.
fn why_build_project(
    image: &PlannedImage,
    base: &PlannedImage,
    spec: &ImageSpec,
    state: &EngineState,
) -> Option<StepReason> {
    let reason = why_build(image, spec, state);
    if reason.is_some() {
        return reason;
    }
    let EngineState::Engine { images, .. } = state else {
        return None;
    };
    let (project, base) = (find(&image.tag, images)?, find(&base.tag, images)?);
    (!project.layers.starts_with(&base.layers)).then_some(StepReason::BaseRebuilt)
}

fn find<'a>(tag: &ImageTag, images: &'a [TaggedImage]) -> Option<&'a TaggedImage> {
    let tag = tag.to_string();
    images.iter().find(|image| image.tag == tag)
}

fn base_steps(spec: &ImageSpec, image: &PlannedImage, reason: StepReason) -> Vec<ImageStep> {
    let image = image.clone();
    match &spec.mode {
        BuildMode::Template { .. } | BuildMode::Dockerfile { .. } => {
            vec![ImageStep::needed(ImageAction::BuildBase { image }, reason)]
        }
        BuildMode::Nix { attribute, .. } => {
            let build = ImageAction::NixBuild {
                attribute: attribute.clone(),
                system: spec.platform.nix_system(),
            };
            vec![
                ImageStep::needed(build, reason),
                ImageStep::needed(ImageAction::Load { image }, StepReason::Follows),
            ]
        }
    }
}

impl ImageStep {
    fn needed(action: ImageAction, reason: StepReason) -> Self {
        Self {
            action,
            reason,
            on_failure: OnFailure::Stop,
        }
    }
}

fn as_text<S: Serializer>(reason: &StepReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(reason)
}

fn as_tag<S: Serializer>(image: &PlannedImage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&image.tag)
}

#[cfg(test)]
mod tests;
