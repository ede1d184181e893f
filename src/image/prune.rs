//! Removes old images.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::builder::ImageBuilder;
use super::error::ImageError;
use super::local_images::LocalImage;
use super::tag::ImageTag;

/// Images of another project are kept this long.
const OLD: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Which images to keep.
#[derive(Clone, Debug)]
pub struct PruneRules {
    /// The images of the current project: its own and the base.
    pub planned: Vec<ImageTag>,
    /// How many images of each repository to keep.
    pub keep: usize,
    /// The current time.
    pub now: Timestamp,
}

/// Whether an image is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneDecision {
    /// It is kept.
    Keep(KeepReason),
    /// It is removed.
    Remove,
}

/// Why an image is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// The current project needs it.
    Planned,
    /// There is a container of it.
    InUse,
    /// It is one of the newest of its repository.
    Newest,
}

impl PruneRules {
    /// Decides about each image. Of each repository the newest are kept; those of another project only for 30 days, and
    /// at least one of them, whatever [`PruneRules::keep`] is.
    #[must_use]
    pub fn decide<'a>(&self, images: &'a [LocalImage]) -> Vec<(&'a LocalImage, PruneDecision)> {
        let mut newest_first: Vec<&LocalImage> = images.iter().collect();
        newest_first.sort_by_key(|image| (Reverse(image.since), &image.tag));
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let decisions = newest_first.into_iter().map(|image| {
            let newer = seen.entry(image.tag.repository()).or_default();
            let decision = self.decide_one(image, *newer);
            *newer += 1;
            (image, decision)
        });
        let mut decisions: Vec<_> = decisions.collect();
        decisions.sort_by_key(|(image, _)| (&image.tag, &image.id));
        decisions
    }

    /// `newer` is the number of newer images of the same repository.
    fn decide_one(&self, image: &LocalImage, newer: usize) -> PruneDecision {
        let is_own = |planned: &ImageTag| planned.repository() == image.tag.repository();
        let is_kept = if self.planned.iter().any(is_own) {
            newer < self.keep
        } else {
            newer < self.keep.max(1) && !self.is_old(image)
        };
        if self.planned.contains(&image.tag) {
            PruneDecision::Keep(KeepReason::Planned)
        } else if image.in_use {
            PruneDecision::Keep(KeepReason::InUse)
        } else if is_kept {
            PruneDecision::Keep(KeepReason::Newest)
        } else {
            PruneDecision::Remove
        }
    }

    /// An image of unknown age is not old.
    fn is_old(&self, image: &LocalImage) -> bool {
        image
            .since
            .is_some_and(|since| self.now.duration_since(since) > OLD)
    }
}

impl ImageBuilder {
    /// Removes all names that end in our tag, and with the last one the image. Names that the user gave it stay.
    pub async fn remove(&self, image: &LocalImage) -> Result<PruneDecision, ImageError> {
        for name in &image.names {
            if !self.engine.remove_unused(name).await? {
                return Ok(PruneDecision::Keep(KeepReason::InUse));
            }
        }
        Ok(PruneDecision::Remove)
    }
}

#[cfg(test)]
mod tests;
