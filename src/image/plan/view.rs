//! How a plan is shown: to a person, and as JSON.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{Action, OnFailure, Plan, PlannedBase, Reason, Step};
use crate::image::labels::Labels;

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "image: {}", self.image.tag)?;
        if let Some(PlannedBase { reference, identity }) = &self.base {
            writeln!(f, "base: {reference} ({identity})")?;
        }
        if self.steps.is_empty() {
            return writeln!(f, "nothing to do: the image is there");
        }
        for (step, number) in self.steps.iter().zip(1..) {
            writeln!(f, "{number}. {step}")?;
        }
        if self.is_provisional() {
            writeln!(
                f,
                "What the pull brings may change the tag and the steps after it."
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.reason)?;
        match self.on_failure {
            OnFailure::Stop => Ok(()),
            OnFailure::GoOn => f.write_str(" (goes on with what is there if this fails)"),
        }
    }
}

impl fmt::Display for Action {
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RebuildAsked => f.write_str("a rebuild was asked for"),
            Self::NoEngine => f.write_str("no engine answers, so that nothing is known to be there"),
            Self::BaseMissing => f.write_str("the engine does not have it"),
            Self::NeverPulled => f.write_str("ralph has not pulled it yet"),
            Self::PulledLongAgo { ago, limit } => {
                write!(
                    f,
                    "the last pull was {} ago, over {}",
                    Rounded(*ago),
                    Rounded(*limit)
                )
            }
            Self::FirstImage => f.write_str("there is none yet"),
            Self::ContentChanged => f.write_str("those that are there have other content"),
            Self::NotOurs => f.write_str("the image of that name is not what it says it is"),
            Self::BaseRebuilt => f.write_str("the one that is there stands on another build of the base"),
            Self::Follows => f.write_str("it was built anew"),
        }
    }
}

/// A time in days or hours.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (count, unit) = match seconds {
            DAY.. => (seconds / DAY, "day"),
            _ => (seconds / HOUR, "hour"),
        };
        write!(f, "{count} {unit}{}", if count == 1 { "" } else { "s" })
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plan = JsonPlan {
            tag: self.image.tag.to_string(),
            hash: self.image.hash.hex(),
            labels: &self.image.labels,
            base: self.base.as_ref().map(|base| JsonBase {
                reference: base.reference.as_str(),
                identity: base.identity.to_string(),
            }),
            provisional: self.is_provisional(),
            steps: &self.steps,
        };
        plan.serialize(serializer)
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        JsonStep::of(self).serialize(serializer)
    }
}

#[derive(Serialize)]
struct JsonPlan<'a> {
    tag: String,
    hash: String,
    labels: &'a Labels,
    base: Option<JsonBase<'a>>,
    provisional: bool,
    steps: &'a [Step],
}

#[derive(Serialize)]
struct JsonBase<'a> {
    reference: &'a str,
    identity: String,
}

#[derive(Serialize)]
struct JsonStep<'a> {
    #[serde(flatten)]
    action: JsonAction<'a>,
    reason: String,
    on_failure: &'static str,
}

#[derive(Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
enum JsonAction<'a> {
    PullBase { reference: &'a str },
    BuildBase { tag: String },
    NixBuild { attribute: &'a str, system: &'a str },
    Load { tag: String },
    BuildProject { tag: String, base: String },
}

impl<'a> JsonStep<'a> {
    fn of(step: &'a Step) -> Self {
        let action = match &step.action {
            Action::PullBase { reference } => JsonAction::PullBase {
                reference: reference.as_str(),
            },
            Action::BuildBase { image } => JsonAction::BuildBase {
                tag: image.tag.to_string(),
            },
            Action::NixBuild { attribute, system } => JsonAction::NixBuild { attribute, system },
            Action::Load { image } => JsonAction::Load {
                tag: image.tag.to_string(),
            },
            Action::BuildProject { image, base } => JsonAction::BuildProject {
                tag: image.tag.to_string(),
                base: base.to_string(),
            },
        };
        Self {
            action,
            reason: step.reason.to_string(),
            on_failure: match step.on_failure {
                OnFailure::Stop => "stop",
                OnFailure::GoOn => "go-on",
            },
        }
    }
}
