//! The differences between two builds of an image.

mod listing;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::fingerprint::ImageFingerprint;
use crate::engine::{Digest, Engine, EngineError, EngineImage};
use listing::{LayerFile, LayerListing, read_listings};

/// Larger images are not read to name the files that differ.
const LARGEST: u64 = 4 << 30;
/// How many files of each layer are named.
const NAMED: usize = 10;

/// One difference between two builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum ImageDifference {
    /// The number of layers.
    Layers {
        /// The number in the first.
        first: usize,
        /// The number in the second.
        second: usize,
    },
    /// A layer.
    Layer {
        /// Its position, the lowest being 1.
        number: usize,
        /// The files that differ.
        files: LayerDifference,
    },
    /// A setting of the config, or a label.
    Setting {
        /// Its name.
        name: String,
    },
}

/// The files in which two layers differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "known", rename_all = "kebab-case")]
pub enum LayerDifference {
    /// Unknown: the image is too large, or its engine compresses layers.
    No,
    /// Known.
    Yes {
        /// Their number.
        count: usize,
        /// The first few.
        some: Vec<FileDifference>,
        /// Whether all of them differ only in their times.
        only_times: bool,
    },
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileDifference {
    /// Its path.
    pub path: String,
    /// What differs.
    pub found: LayerFileChange,
}

/// What differs in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LayerFileChange {
    /// Only the first layer has the file.
    OnlyInFirst,
    /// Only the second layer has the file.
    OnlyInSecond,
    /// The content, or the target of a link.
    Content,
    /// The kind, mode or owner.
    Attributes,
    /// Only the time.
    Time,
}

/// Compares two images. Files are named if that takes no more than reading both images once.
pub(super) async fn differences(
    engine: &Engine,
    first: &EngineImage,
    second: &EngineImage,
) -> Result<Vec<ImageDifference>, EngineError> {
    let (one, other) = (ImageFingerprint::new(first), ImageFingerprint::new(second));
    if one.digest() == other.digest() {
        return Ok(Vec::new());
    }
    let mut found = settings(&one, &other);
    let (one, other) = (one.layers(), other.layers());
    if one.len() != other.len() {
        found.push(ImageDifference::Layers {
            first: one.len(),
            second: other.len(),
        });
    }
    // Layers at the same position that differ.
    let pairs = one.iter().zip(other).zip(1..);
    let pairs: Vec<_> = pairs.filter(|((first, second), _)| first != second).collect();
    if pairs.is_empty() {
        return Ok(found);
    }
    let is_small = first.size.max(second.size) <= LARGEST;
    let (old, new) = if is_small {
        let firsts = pairs.iter().map(|((first, _), _)| **first).collect();
        let seconds = pairs.iter().map(|((_, second), _)| **second).collect();
        (
            read(engine, &first.id, firsts).await?,
            read(engine, &second.id, seconds).await?,
        )
    } else {
        (BTreeMap::new(), BTreeMap::new())
    };
    found.extend(
        pairs
            .into_iter()
            .map(|((first, second), number)| ImageDifference::Layer {
                number,
                files: match (old.get(first), new.get(second)) {
                    (Some(old), Some(new)) => compare(old, new),
                    _ => LayerDifference::No,
                },
            }),
    );
    Ok(found)
}

fn settings(first: &ImageFingerprint, second: &ImageFingerprint) -> Vec<ImageDifference> {
    let (first, second) = (first.settings(), second.settings());
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| first.get(*name) != second.get(*name));
    differing
        .map(|name| ImageDifference::Setting { name: name.clone() })
        .collect()
}

async fn read(
    engine: &Engine,
    image: &Digest,
    layers: BTreeSet<Digest>,
) -> Result<BTreeMap<Digest, LayerListing>, EngineError> {
    engine.save(image, move |from| read_listings(from, &layers)).await
}

fn compare(first: &LayerListing, second: &LayerListing) -> LayerDifference {
    let paths: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let differing: Vec<FileDifference> = paths
        .into_iter()
        .filter_map(|path| {
            Some(FileDifference {
                path: path.clone(),
                found: compare_file(first.get(path), second.get(path))?,
            })
        })
        .collect();
    LayerDifference::Yes {
        count: differing.len(),
        only_times: differing.iter().all(|file| file.found == LayerFileChange::Time),
        some: differing.into_iter().take(NAMED).collect(),
    }
}

fn compare_file(first: Option<&LayerFile>, second: Option<&LayerFile>) -> Option<LayerFileChange> {
    match (first, second) {
        (None, None) => None,
        (Some(_), None) => Some(LayerFileChange::OnlyInFirst),
        (None, Some(_)) => Some(LayerFileChange::OnlyInSecond),
        (Some(first), Some(second)) if first.content != second.content => Some(LayerFileChange::Content),
        (Some(first), Some(second)) if first.attributes != second.attributes => {
            Some(LayerFileChange::Attributes)
        }
        (Some(first), Some(second)) => (first.time != second.time).then_some(LayerFileChange::Time),
    }
}

#[cfg(test)]
mod tests;
