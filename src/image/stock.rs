//! The images of ours that an engine has.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::error::ImageError;
use super::facts::Pulls;
use super::labels::{self, Labels};
use super::reference::ImageReference;
use super::tag::ImageTag;
use super::tools::Tools;
use crate::engine::{Digest, Engine, EngineImage};

/// An image of ours, as an engine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stocked {
    /// What the engine knows it by.
    pub id: Digest,
    /// Our name for it.
    pub tag: ImageTag,
    /// All names that end in that tag: here, and in registries.
    pub names: Vec<String>,
    /// What else somebody calls it.
    pub other_names: Vec<String>,
    /// Its labels.
    pub labels: Labels,
    /// How many layers it has.
    pub layers: usize,
    /// How many bytes it takes, shared layers included.
    pub size: u64,
    /// Since when it is here, as far as the engine can tell.
    pub since: Option<Timestamp>,
    /// How it came here.
    pub arrival: Arrival,
    /// Whether it is needed right now.
    pub usage: Usage,
}

/// How an image came to an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It was built.
    Built,
    /// It was pulled under this name.
    Pulled(String),
}

/// Whether there is a container of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// There is one, running or not.
    InUse,
    /// There is none.
    Unused,
}

/// All images of ours, by name: those with our labels whose tag fits them. What a user built on one of them has its
/// labels too, and is the user's.
pub async fn stock(engine: &Engine, tools: &Tools) -> Result<Vec<Stocked>, ImageError> {
    let images = engine.images(Some(labels::HASH)).await?;
    let in_use = engine.images_in_use().await?;
    let was_pulled = |name: &str| {
        let reference = ImageReference::parse(name).ok();
        let pulls = reference.map(|name| tools.pulls(engine).of(&name, tools.clock.now()));
        let succeeded = |pulls| {
            matches!(
                pulls,
                Pulls::Earlier {
                    succeeded: Some(_),
                    ..
                }
            )
        };
        pulls.is_some_and(succeeded)
    };
    let ours = images
        .into_iter()
        .filter_map(|image| stocked(image, &in_use, was_pulled));
    let mut ours: Vec<Stocked> = ours.collect();
    ours.sort_by(|a, b| (&a.tag, &a.id).cmp(&(&b.tag, &b.id)));
    Ok(ours)
}

fn stocked(
    image: EngineImage,
    in_use: &BTreeSet<Digest>,
    was_pulled: impl Fn(&str) -> bool,
) -> Option<Stocked> {
    let hash = image.labels.get(labels::HASH)?;
    let tag_of = |name: &String| ImageTag::at_end_of(name).filter(|tag| tag.shows(hash));
    let tag = image.repo_tags.iter().find_map(tag_of)?;
    let (names, other_names): (Vec<_>, Vec<_>) = image
        .repo_tags
        .iter()
        .cloned()
        .partition(|name| tag_of(name).is_some());
    let pulled = names.iter().find(|name| was_pulled(name)).cloned();
    Some(Stocked {
        usage: if in_use.contains(&image.id) {
            Usage::InUse
        } else {
            Usage::Unused
        },
        tag,
        names,
        other_names,
        labels: image.labels.iter().collect(),
        layers: image.diff_ids.len(),
        size: image.size,
        since: image.last_tagged.or(image.created),
        arrival: pulled.map_or(Arrival::Built, Arrival::Pulled),
        id: image.id,
    })
}
