//! What sandboxes start from, where the provider itself keeps it: the templates of Tart, the snapshots of Daytona.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::{SandboxError, SandboxSpec};

/// Templates or snapshots that may belong to others are kept for this long after their last use.
const RECENT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The templates or snapshots of one provider.
#[async_trait]
pub trait ProviderImages: Send + Sync {
    /// The word for one of them.
    fn kind(&self) -> &'static str;

    /// All that ralph made, sorted by name, and the one that a sandbox of this spec starts from, which may be missing or
    /// made by someone else.
    async fn list(&self, spec: &SandboxSpec) -> Result<Vec<ProviderImage>, SandboxError>;

    /// Makes the one that a sandbox of this spec starts from, unless it exists. Returns its name; `None` if such a sandbox
    /// needs none.
    async fn ensure(&self, spec: &SandboxSpec) -> Result<Option<String>, SandboxError>;

    /// Removes one that ralph made. Does nothing if it is gone; refuses one that someone else made.
    async fn remove(&self, name: &str) -> Result<(), SandboxError>;
}

/// A template or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct ProviderImage {
    /// Its name. It contains a hash of the content.
    pub name: String,
    /// Whether it exists.
    pub is_present: bool,
    /// Whether a sandbox of the spec starts from it.
    pub is_planned: bool,
    /// Whether ralph made it.
    pub is_own: bool,
    /// Whether it is known that the project of the spec made it.
    pub is_of_project: bool,
    /// Whether a sandbox was created from it and still exists.
    pub in_use: bool,
    /// When it was last used, or made, if that is known.
    pub used: Option<Timestamp>,
}

/// Whether a template or snapshot is kept when old ones are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderImageFate {
    /// Kept: ralph did not make it.
    Foreign,
    /// Kept: sandboxes of the configuration start from it.
    Planned,
    /// Kept: a sandbox uses it.
    InUse,
    /// Kept: it may belong to another project or to a colleague, and was used in the last 30 days or at an unknown time.
    Recent,
    /// Removed.
    Old,
}

impl ProviderImage {
    /// Whether it is kept when old ones are removed.
    #[must_use]
    pub fn fate(&self, now: Timestamp) -> ProviderImageFate {
        let is_recent = self.used.is_none_or(|used| now.duration_since(used) <= RECENT);
        if !self.is_own {
            ProviderImageFate::Foreign
        } else if self.is_planned {
            ProviderImageFate::Planned
        } else if self.in_use {
            ProviderImageFate::InUse
        } else if !self.is_of_project && is_recent {
            ProviderImageFate::Recent
        } else {
            ProviderImageFate::Old
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn image() -> ProviderImage {
        ProviderImage {
            name: "ralph-0123456789ab".to_owned(),
            is_present: true,
            is_planned: false,
            is_own: true,
            is_of_project: true,
            in_use: false,
            used: "2026-11-16T00:00:00Z".parse().ok(),
        }
    }

    #[rstest]
    #[case::old(image(), ProviderImageFate::Old)]
    #[case::planned(ProviderImage { is_planned: true, ..image() }, ProviderImageFate::Planned)]
    #[case::in_use(ProviderImage { in_use: true, ..image() }, ProviderImageFate::InUse)]
    #[case::foreign(ProviderImage { is_own: false, ..image() }, ProviderImageFate::Foreign)]
    #[case::of_another_project(ProviderImage { is_of_project: false, ..image() }, ProviderImageFate::Recent)]
    #[case::of_unknown_age(
        ProviderImage { is_of_project: false, used: None, ..image() },
        ProviderImageFate::Recent
    )]
    #[case::of_another_project_and_unused(
        ProviderImage { is_of_project: false, used: "2026-10-01T00:00:00Z".parse().ok(), ..image() },
        ProviderImageFate::Old
    )]
    fn only_old_ones_are_removed(#[case] image: ProviderImage, #[case] fate: ProviderImageFate) {
        assert_eq!(image.fate("2026-11-17T00:00:00Z".parse().unwrap()), fate);
    }
}
