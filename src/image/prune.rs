//! Which of our images are old, and their removal.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::error::ImageError;
use super::stock::{Stocked, Usage};
use super::tag::ImageTag;
use crate::engine::{Engine, ImageRemoval};

/// The newest image of another project stays this long. Longer, and the project is not worked on any more.
const OLD: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What stays.
#[derive(Clone, Debug)]
pub struct PruneRules {
    /// What the project of whoever asks needs: its image and, below that, its base.
    pub planned: Vec<ImageTag>,
    /// How many images of each name stay.
    pub keep: usize,
    /// The time.
    pub now: Timestamp,
}

/// What becomes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Kept(KeptFor),
    /// It goes.
    Removed,
}

/// Why an image stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFor {
    /// The project needs it.
    Planned,
    /// There is a container of it.
    InUse,
    /// It is one of the newest of its name.
    Newest,
}

/// Decides which images go. Of the images of one name, the newest stay; those of another project stay for so long only,
/// and the newest of them however few are to be kept.
#[must_use]
pub fn judge<'a>(stock: &'a [Stocked], rules: &PruneRules) -> Vec<(&'a Stocked, Fate)> {
    let mut newest_first: Vec<&Stocked> = stock.iter().collect();
    newest_first.sort_by_key(|image| (Reverse(image.since), &image.tag));
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let judged = newest_first.into_iter().map(|image| {
        let newer = seen.entry(image.tag.repository()).or_default();
        let fate = fate(image, *newer, rules);
        *newer += 1;
        (image, fate)
    });
    let mut judged: Vec<_> = judged.collect();
    judged.sort_by_key(|(image, _)| (&image.tag, &image.id));
    judged
}

/// Removes all our names of an image, and with the last one the image. What somebody else calls it stays.
pub async fn remove(engine: &Engine, image: &Stocked) -> Result<Fate, ImageError> {
    for name in &image.names {
        match engine.remove_unused(name).await? {
            ImageRemoval::Removed => {}
            ImageRemoval::InUse => return Ok(Fate::Kept(KeptFor::InUse)),
        }
    }
    Ok(Fate::Removed)
}

/// `newer` is how many images of the same name are newer.
fn fate(image: &Stocked, newer: usize, rules: &PruneRules) -> Fate {
    let is_own = |planned: &ImageTag| planned.repository() == image.tag.repository();
    let stays = if rules.planned.iter().any(is_own) {
        newer < rules.keep
    } else {
        newer < rules.keep.max(1) && !is_old(image, rules.now)
    };
    if rules.planned.contains(&image.tag) {
        Fate::Kept(KeptFor::Planned)
    } else if image.usage == Usage::InUse {
        Fate::Kept(KeptFor::InUse)
    } else if stays {
        Fate::Kept(KeptFor::Newest)
    } else {
        Fate::Removed
    }
}

/// An image of which nobody knows since when it is here is not called old.
fn is_old(image: &Stocked, now: Timestamp) -> bool {
    image.since.is_some_and(|since| now.duration_since(since) > OLD)
}

#[cfg(test)]
mod tests;
