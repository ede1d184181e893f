//! The images of this host, for people.

use schemars::JsonSchema;
use serde::Serialize;

use crate::image::{LocalImage, labels};

use super::{AssemblyError, Surroundings};

/// An image that ralph built or pulled.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ImageOverview {
    /// Its tag.
    pub image: String,
    /// All its names.
    pub names: Vec<String>,
    /// The agent in it.
    pub agent: Option<String>,
    /// The project whose layer it has.
    pub project: Option<String>,
    /// The name under which it was pulled; `null` if it was built here.
    pub pulled_from: Option<String>,
    /// Its size in bytes, with the layers that it shares with others.
    pub bytes: u64,
    /// Since when the engine has it.
    pub since: Option<String>,
    /// Whether there is a container of it.
    pub in_use: bool,
}

impl ImageOverview {
    /// All images of ralph in the container engine, by tag.
    pub async fn all(surroundings: &Surroundings) -> Result<Vec<Self>, AssemblyError> {
        let images = surroundings.image_builder().await?.images().await?;
        Ok(images.iter().map(Self::new).collect())
    }

    fn new(image: &LocalImage) -> Self {
        let label = |name: &str| image.labels.get(name).cloned();
        Self {
            image: image.tag.to_string(),
            names: image.names.iter().chain(&image.other_names).cloned().collect(),
            agent: label(labels::AGENT),
            project: label(labels::PROJECT),
            pulled_from: image.pulled_from.clone(),
            bytes: image.size,
            since: image.since.map(|since| since.to_string()),
            in_use: image.in_use,
        }
    }
}
