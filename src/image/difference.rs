//! In what two builds of an image differ.

mod listing;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::fingerprint::Fingerprint;
use crate::engine::{Digest, Engine, EngineError, EngineImage};
use listing::{Entry, Listing, listings};

/// Larger images are not read only to name the files that differ.
const LARGEST: u64 = 4 << 30;
/// How many files are named for each layer.
const NAMED: usize = 10;

/// One thing in which two builds differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Difference {
    /// They have not equally many layers.
    Layers {
        /// How many the first has.
        first: usize,
        /// How many the second has.
        second: usize,
    },
    /// A layer.
    Layer {
        /// Which one, the lowest being 1.
        number: usize,
        /// In which files.
        files: Files,
    },
    /// What a container starts with, or a label.
    Setting {
        /// Its name.
        name: String,
    },
}

/// The files in which two layers differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "known", rename_all = "kebab-case")]
pub enum Files {
    /// They were not compared: the image is too large for it, or its engine packs layers.
    No,
    /// These.
    Yes {
        /// How many there are.
        count: usize,
        /// The first few of them.
        some: Vec<FileDifference>,
        /// Whether all of them differ in their times alone.
        only_times: bool,
    },
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileDifference {
    /// Its path.
    pub path: String,
    /// In what.
    pub found: Found,
}

/// In what a file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// Only the first layer has it.
    OnlyInFirst,
    /// Only the second layer has it.
    OnlyInSecond,
    /// In what it holds, or where it leads.
    Content,
    /// In its kind, mode or owner.
    Attributes,
    /// In nothing but its time.
    Time,
}

/// Finds out in what two images differ. Files are named where that takes no more than reading both images once.
pub(super) async fn differences(
    engine: &Engine,
    first: &EngineImage,
    second: &EngineImage,
) -> Result<Vec<Difference>, EngineError> {
    let (one, other) = (Fingerprint::of(first), Fingerprint::of(second));
    if one.digest() == other.digest() {
        return Ok(Vec::new());
    }
    let mut found = settings(&one, &other);
    let (one, other) = (one.layers(), other.layers());
    if one.len() != other.len() {
        found.push(Difference::Layers {
            first: one.len(),
            second: other.len(),
        });
    }
    let pairs: Vec<Pair> = pairs(one, other).collect();
    if pairs.is_empty() {
        return Ok(found);
    }
    let is_small = first.size.max(second.size) <= LARGEST;
    let (old, new) = if is_small {
        let firsts = pairs.iter().map(|pair| pair.first.clone()).collect();
        let seconds = pairs.iter().map(|pair| pair.second.clone()).collect();
        (
            read(engine, &first.id, firsts).await?,
            read(engine, &second.id, seconds).await?,
        )
    } else {
        (BTreeMap::new(), BTreeMap::new())
    };
    found.extend(pairs.iter().map(|pair| Difference::Layer {
        number: pair.number,
        files: match (old.get(&pair.first), new.get(&pair.second)) {
            (Some(old), Some(new)) => compare(old, new),
            _ => Files::No,
        },
    }));
    Ok(found)
}

/// Two layers that stand in the same place and differ.
struct Pair {
    number: usize,
    first: Digest,
    second: Digest,
}

fn pairs(first: &[Digest], second: &[Digest]) -> impl Iterator<Item = Pair> {
    let numbered = first.iter().zip(second).zip(1..);
    numbered
        .filter(|((first, second), _)| first != second)
        .map(|((first, second), number)| Pair {
            number,
            first: first.clone(),
            second: second.clone(),
        })
}

fn settings(first: &Fingerprint, second: &Fingerprint) -> Vec<Difference> {
    let (first, second) = (first.settings(), second.settings());
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| first.get(*name) != second.get(*name));
    differing
        .map(|name| Difference::Setting { name: name.clone() })
        .collect()
}

async fn read(
    engine: &Engine,
    image: &Digest,
    layers: BTreeSet<Digest>,
) -> Result<BTreeMap<Digest, Listing>, EngineError> {
    engine.save(image, move |from| listings(from, &layers)).await
}

fn compare(first: &Listing, second: &Listing) -> Files {
    let paths: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let differing: Vec<FileDifference> = paths
        .into_iter()
        .filter_map(|path| {
            Some(FileDifference {
                path: path.clone(),
                found: in_what(first.get(path), second.get(path))?,
            })
        })
        .collect();
    Files::Yes {
        count: differing.len(),
        only_times: differing.iter().all(|file| file.found == Found::Time),
        some: differing.into_iter().take(NAMED).collect(),
    }
}

fn in_what(first: Option<&Entry>, second: Option<&Entry>) -> Option<Found> {
    match (first, second) {
        (None, None) => None,
        (Some(_), None) => Some(Found::OnlyInFirst),
        (None, Some(_)) => Some(Found::OnlyInSecond),
        (Some(first), Some(second)) if first.content != second.content => Some(Found::Content),
        (Some(first), Some(second)) if first.attributes != second.attributes => Some(Found::Attributes),
        (Some(first), Some(second)) => (first.time != second.time).then_some(Found::Time),
    }
}

#[cfg(test)]
mod tests;
