//! The images of ralph that an engine has.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::builder::ImageBuilder;
use super::engine_state::PullHistory;
use super::error::ImageError;
use super::labels;
use super::reference::ImageReference;
use super::tag::ImageTag;
use crate::digest::Digest;
use crate::engine::EngineImage;

/// An image of ralph in an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalImage {
    /// Its id in the engine.
    pub id: Digest,
    /// Its tag.
    pub tag: ImageTag,
    /// All names that end in that tag: here, and in registries.
    pub names: Vec<String>,
    /// Names that the user gave it.
    pub other_names: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The number of its layers.
    pub layers: usize,
    /// Its size in bytes, with the layers that it shares with other images.
    pub size: u64,
    /// Since when the engine has it, as far as the engine knows.
    pub since: Option<Timestamp>,
    /// The name under which it was pulled; `None` if it was built here.
    pub pulled_from: Option<String>,
    /// Whether there is a container of it, running or not.
    pub in_use: bool,
}

impl ImageBuilder {
    /// Lists the images of ralph, by tag. An image that a user built on one of them has its labels but not its tag, and is
    /// not listed.
    pub async fn images(&self) -> Result<Vec<LocalImage>, ImageError> {
        let images = self.engine.images(Some(labels::HASH)).await?;
        let in_use = self.engine.images_in_use().await?;
        let (log, now) = (self.environment.pulls(&self.engine), self.environment.clock.now());
        let was_pulled = |name: &str| {
            let name = ImageReference::parse(name);
            name.is_ok_and(|name| {
                matches!(
                    log.history(&name, now),
                    PullHistory::Earlier {
                        succeeded: Some(_),
                        ..
                    }
                )
            })
        };
        let ours = images
            .into_iter()
            .filter_map(|image| local_image(&image, &in_use, was_pulled));
        let mut ours: Vec<LocalImage> = ours.collect();
        ours.sort_by(|a, b| (&a.tag, &a.id).cmp(&(&b.tag, &b.id)));
        Ok(ours)
    }
}

fn local_image(
    image: &EngineImage,
    in_use: &BTreeSet<Digest>,
    was_pulled: impl Fn(&str) -> bool,
) -> Option<LocalImage> {
    let hash = image.labels.get(labels::HASH)?;
    let tag_of = |name: &String| ImageTag::at_end_of(name).filter(|tag| tag.matches_hash(hash));
    let tag = image.repo_tags.iter().find_map(tag_of)?;
    let (names, other_names): (Vec<_>, Vec<_>) = image
        .repo_tags
        .iter()
        .cloned()
        .partition(|name| tag_of(name).is_some());
    Some(LocalImage {
        in_use: in_use.contains(&image.id),
        pulled_from: names.iter().find(|name| was_pulled(name)).cloned(),
        tag,
        names,
        other_names,
        labels: image.labels.clone(),
        layers: image.diff_ids.len(),
        size: image.size,
        since: image.last_tagged.or(image.created),
        id: image.id,
    })
}
