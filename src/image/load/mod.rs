//! Loads an image into an engine, and sends only what the engine lacks of it.
//!
//! A [`Source`] is first read for its [`Catalogue`]: which layers there are, and how large. What is known of it from an
//! earlier load is not read again ([`LayerCache`]). Then [`arrange`] decides, without looking at anything, in which order
//! the layers stand and which are left out. [`deliver`] sends the others, proves the image whole, and names it last:
//! whatever happens on the way, there is no broken image under the name.

mod archive;
mod arrange;
mod cache;
mod catalogue;
mod compose;
mod copy;
mod deliver;
mod error;
mod hybrid;
mod listing;
mod portion;
mod probe;
mod remembered;
mod script;
mod source;
mod spool;
mod store_tar;
mod stream_conf;

use std::collections::BTreeMap;

pub use arrange::{Arrangement, LayerOrder, LeaveOut, arrange};
pub use cache::LayerCache;
pub use catalogue::{Catalogue, Encoding, Layer};
pub use deliver::{Delivery, Loaded, Sent, deliver};
pub use error::{Flaw, LoadError};
pub use portion::unfinished;
pub use source::Source;

use crate::engine::{Digest, Engine, EngineImage, EngineImageReference, ProgressSink};

/// An image to be loaded.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where its layers come from.
    pub source: Source,
    /// Whether its layers may change places.
    pub order: LayerOrder,
    /// Labels it gets, besides its own.
    pub labels: BTreeMap<String, String>,
    /// What it is called in the end.
    pub tag: EngineImageReference,
    /// What is remembered of images that were read.
    pub cache: LayerCache,
}

/// Loads an image. When it fails, whatever had the name before still has it.
pub async fn load(
    engine: &Engine,
    request: &Request,
    progress: &mut dyn ProgressSink,
) -> Result<Loaded, LoadError> {
    let (info, images) = tokio::join!(engine.info(), engine.images(None));
    let images = images?;
    let present = layers_of(&images);
    let (source, cache) = (request.source.clone(), request.cache.clone());
    let read = tokio::task::spawn_blocking(move || (source.catalogue(&cache, &present), present));
    let (read, present) = read
        .await
        .map_err(|error| LoadError::read(&request.source, error.into()))?;
    let catalogue = read?;
    let delivery = Delivery {
        request,
        arrangement: arrange(&catalogue.layers, request.order, &present, LeaveOut::by(&info?)),
        catalogue,
    };
    let loaded = deliver(engine, &delivery, progress).await?;
    let layers = delivery.arrangement.order.iter();
    let layers = layers.map(|at| delivery.catalogue.layers[*at].diff_id.clone());
    portion::remove_left(engine, &images, &loaded.id, &layers.collect::<Vec<_>>()).await;
    Ok(loaded)
}

fn layers_of(images: &[EngineImage]) -> Vec<Vec<Digest>> {
    images.iter().map(|image| image.diff_ids.clone()).collect()
}
