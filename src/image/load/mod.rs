//! Loads an image into an engine, and sends only the layers that the engine lacks.
//!
//! A [`LoadSource`] is first read for its [`ImageContents`]: which layers there are, and how large they are. [`arrange`]
//! then decides, without any I/O, in which order the layers are stacked and which are sent. [`PreparedLoad::send`] sends
//! them, verifies the image in the engine, and tags it last, so that a failed load never leaves a broken image under the
//! tag.

mod archive;
mod arrange;
mod cache;
mod compose;
mod contents;
mod format_probe;
mod listing;
mod partial_archive;
mod program;
mod send;
mod source;
mod spool;
mod store_tar;
mod stream_conf;

use std::collections::BTreeMap;

pub use arrange::{LayerArrangement, LayerOrder, OmittableLayers, arrange};
pub use cache::LayerCache;
pub use contents::{ImageContents, ImageLayer, LayerEncoding};
pub use send::{LoadedImage, PreparedLoad, SentLayers};
pub use source::LoadSource;

use crate::digest::Digest;
use crate::engine::{Engine, EngineImageReference, ProgressSink};
use crate::image::error::ImageError;

/// An image to load.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// Where its layers come from.
    pub source: LoadSource,
    /// Whether its layers may be reordered.
    pub order: LayerOrder,
    /// Labels to add to the image's own.
    pub labels: BTreeMap<String, String>,
    /// The tag it gets in the end.
    pub tag: EngineImageReference,
    /// What earlier loads computed.
    pub cache: LayerCache,
}

/// Loads an image. If that fails, the tag stays with the image that had it.
pub async fn load(
    engine: &Engine,
    request: &LoadRequest,
    progress: &mut dyn ProgressSink,
) -> Result<LoadedImage, ImageError> {
    let (info, images) = tokio::join!(engine.info(), engine.images(None));
    let present: Vec<Vec<Digest>> = images?.into_iter().map(|image| image.diff_ids).collect();
    let (source, cache) = (request.source.clone(), request.cache.clone());
    let read = tokio::task::spawn_blocking(move || (source.read_contents(&cache, &present), present));
    let (contents, present) = read
        .await
        .map_err(|error| request.source.unreadable(error.into()))?;
    let contents = contents?;
    let omittable = OmittableLayers::for_engine(&info?);
    let prepared = PreparedLoad {
        request,
        arrangement: arrange(&contents.layers, request.order, &present, omittable),
        contents,
    };
    prepared.send(engine, progress).await
}
