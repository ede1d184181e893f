//! A plan as text and as JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::{ImageAction, ImagePlan, ImageStep, OnFailure, PlannedBase, PlannedDockerfile, StepReason};
use crate::image::tag::ImageTag;
use crate::text::counted;

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;

impl fmt::Display for ImagePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "image: {}", self.image.tag)?;
        if let Some(PlannedBase { reference, identity }) = &self.base {
            writeln!(f, "base: {reference} ({identity})")?;
        }
        if self.steps.is_empty() {
            return writeln!(f, "nothing to do: the image is up to date");
        }
        for (step, number) in self.steps.iter().zip(1..) {
            writeln!(f, "{number}. {step}")?;
        }
        if self.is_provisional() {
            writeln!(f, "note: the pull may change the tag and the later steps")?;
        }
        Ok(())
    }
}

impl fmt::Display for PlannedDockerfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dockerfile of {}", self.tag)?;
        if let Some(base) = &self.base {
            write!(f, ", with BASE_IMAGE={base}")?;
        }
        write!(f, ":\n\n{}", self.text)
    }
}

impl fmt::Display for ImageStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.reason)?;
        match self.on_failure {
            OnFailure::Stop => Ok(()),
            OnFailure::GoOn => f.write_str("; if this fails, the existing image is used"),
        }
    }
}

impl fmt::Display for ImageAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PullBase { reference } => write!(f, "pull {reference}"),
            Self::BuildBase { image } => write!(f, "build {}", image.tag),
            Self::NixBuild { attribute, system } => write!(f, "nix build {attribute} for {system}"),
            Self::Load { image } => write!(f, "load {}", image.tag),
            Self::BuildProject { image, base } => write!(f, "build {} on {base}", image.tag),
        }
    }
}

impl fmt::Display for StepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RebuildRequested => f.write_str("a rebuild was requested"),
            Self::NoEngine => f.write_str("no engine answers, so its images are unknown"),
            Self::BaseMissing => f.write_str("the engine does not have it"),
            Self::OtherPlatform { found, wanted } => {
                write!(f, "the engine has it for {found}, not for {}", wanted.name())
            }
            Self::NeverPulled => f.write_str("ralph has never pulled it"),
            Self::PulledLongAgo { ago, limit } => {
                write!(
                    f,
                    "the last pull was {} ago (limit {})",
                    Rounded(*ago),
                    Rounded(*limit)
                )
            }
            Self::FirstImage => f.write_str("it does not exist yet"),
            Self::ContentChanged => f.write_str("its inputs changed"),
            Self::HashMismatch => f.write_str("the image under its tag has other content"),
            Self::BaseRebuilt => f.write_str("its base was rebuilt"),
            Self::Follows => f.write_str("it was just built"),
        }
    }
}

/// A duration in days or hours.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (count, unit) = match seconds {
            DAY.. => (seconds / DAY, "day"),
            _ => (seconds / HOUR, "hour"),
        };
        f.write_str(&counted(count, unit))
    }
}

impl JsonSchema for ImagePlan {
    fn schema_name() -> Cow<'static, str> {
        "ImagePlan".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PlanSummary::json_schema(generator)
    }
}

/// A plan in JSON.
#[derive(Serialize, JsonSchema)]
pub(super) struct PlanSummary {
    /// The tag of the image that a sandbox starts from.
    tag: ImageTag,
    /// The hash of its content.
    hash: String,
    labels: BTreeMap<String, String>,
    /// The image that the base is built from. A Nix image has none.
    base: Option<PlannedBase>,
    /// Whether the tag may change: the content of the base is not known yet.
    provisional: bool,
    /// What must be done, in order.
    steps: Vec<ImageStep>,
}

impl From<ImagePlan> for PlanSummary {
    fn from(plan: ImagePlan) -> Self {
        Self {
            provisional: plan.is_provisional(),
            tag: plan.image.tag,
            hash: plan.image.hash.hex(),
            labels: plan.image.labels,
            base: plan.base,
            steps: plan.steps,
        }
    }
}
