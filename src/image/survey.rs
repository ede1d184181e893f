//! Asks an engine for what a plan is made from.

use futures_util::future::try_join_all;

use super::error::ImageError;
use super::facts::{BaseIdentity, BaseImage, Facts, OwnImage, Pulls};
use super::labels;
use super::plan::plan;
use super::spec::ImageSpec;
use super::tools::Tools;
use crate::engine::{Engine, EngineError, EngineImage};

/// The host that podman puts before a name that has none.
const LOCAL_HOST: &str = "localhost/";

/// What an engine has of an image and of what it is built from.
///
/// Where all of the image is there, that takes an answer for each part; all images of ours are listed only when
/// something is missing, to tell why.
pub async fn survey(engine: &Engine, spec: &ImageSpec, tools: &Tools) -> Result<Facts, ImageError> {
    let pulls = |base| tools.pulls(engine).of(base, tools.clock.now());
    Ok(look(engine, spec, spec.mode().base().map(pulls)).await?)
}

/// As [`survey`], just after the base was pulled or that was tried.
pub(super) async fn survey_after_pull(engine: &Engine, spec: &ImageSpec) -> Result<Facts, ImageError> {
    Ok(look(engine, spec, Some(Pulls::JustTried)).await?)
}

async fn look(engine: &Engine, spec: &ImageSpec, pulls: Option<Pulls>) -> Result<Facts, EngineError> {
    let base = match (spec.mode().base(), pulls) {
        (Some(reference), Some(pulls)) => {
            let found = engine.image(reference.as_str()).await?;
            found.map(|image| BaseImage {
                identity: BaseIdentity::of(reference, &image.repo_digests, &diff_ids(&image)),
                pulls,
            })
        }
        _ => None,
    };
    let images = Vec::new();
    let from_nothing = plan(
        spec,
        &Facts::Engine {
            images,
            base: base.clone(),
        },
    );
    let tags: Vec<String> = from_nothing.makes().map(|image| image.tag.to_string()).collect();
    let found = try_join_all(tags.iter().map(|tag| engine.image(tag))).await?;
    let is_complete = found.iter().all(Option::is_some);
    let mut there: Vec<EngineImage> = found.into_iter().flatten().collect();
    if !is_complete {
        there.extend(engine.images(Some(labels::HASH)).await?);
    }
    Ok(Facts::Engine {
        images: there.iter().flat_map(own_images).collect(),
        base,
    })
}

/// An image once for each name it has.
fn own_images(image: &EngineImage) -> impl Iterator<Item = OwnImage> {
    image.repo_tags.iter().map(|tag| OwnImage {
        tag: tag.strip_prefix(LOCAL_HOST).unwrap_or(tag).to_owned(),
        labels: image.labels.iter().collect(),
        layers: diff_ids(image),
    })
}

fn diff_ids(image: &EngineImage) -> Vec<String> {
    image.diff_ids.iter().map(ToString::to_string).collect()
}
