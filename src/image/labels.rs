//! The labels of ralph's images, by which they are found and verified.

use std::collections::BTreeMap;

use serde::Serialize;

/// The whole content hash. The tag shows its first digits.
pub const HASH: &str = "ralph.image.hash";
/// The agent's name.
pub const AGENT: &str = "ralph.image.agent";
/// The project's name. Only a project's image has it.
pub const PROJECT: &str = "ralph.image.project";
/// What it was built from: `template`, `dockerfile` or `nix`.
pub const MODE: &str = "ralph.image.mode";
/// The identity of the image that the base was built from. A Nix image has none.
pub const BASE: &str = "ralph.image.base";
/// The version of ralph that built the image.
pub const VERSION: &str = "ralph.version";

/// The labels of an image, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ImageLabels(BTreeMap<String, String>);

impl ImageLabels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All labels, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for ImageLabels {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(labels: I) -> Self {
        let owned = labels
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self(owned.collect())
    }
}
