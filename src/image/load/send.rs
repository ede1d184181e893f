//! Sends an image to an engine, verifies it there, and tags it last.

use super::LoadRequest;
use super::arrange::{LayerArrangement, OmittableLayers};
use super::compose::ComposedImage;
use super::contents::ImageContents;
use super::partial_archive;
use crate::digest::Digest;
use crate::engine::{Engine, EngineError, ProgressSink, TarStream};
use crate::image::error::ImageError;
use crate::text::error_chain;

/// An image that was read and arranged, ready to be sent.
#[derive(Debug)]
pub struct PreparedLoad<'a> {
    /// What to load, and under which tag.
    pub request: &'a LoadRequest,
    /// The image's config and layers.
    pub contents: ImageContents,
    /// The order of the layers, and which of them are sent.
    pub arrangement: LayerArrangement,
}

/// An image that the engine has under its tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedImage {
    /// Its id in the engine.
    pub id: Digest,
    /// The number of all its layers.
    pub layers: usize,
    /// What was sent of it.
    pub sent: SentLayers,
}

/// Which layers of an image were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentLayers {
    /// None: the engine had the image.
    Nothing,
    /// The layers that the engine lacked.
    Missing {
        /// How many.
        layers: usize,
        /// Their size.
        bytes: u64,
    },
    /// All of them, because the engine had none or could not use those it had.
    Everything {
        /// Their size.
        bytes: u64,
    },
}

impl PreparedLoad<'_> {
    /// Sends the missing layers and tags the image. If the engine cannot use the image without the omitted layers, it
    /// is removed and sent again with all of them.
    pub async fn send(
        &self,
        engine: &Engine,
        progress: &mut dyn ProgressSink,
    ) -> Result<LoadedImage, ImageError> {
        let image = ComposedImage::new(&self.contents, &self.arrangement.order, &self.request.labels);
        let image = image.map_err(|error| self.request.source.unreadable(error.into()))?;
        let id = match self.arrangement.omittable {
            OmittableLayers::Any => image.manifest.digest,
            OmittableLayers::Prefix | OmittableLayers::Nothing => image.config.digest,
        };
        let upload = Upload {
            engine,
            load: self,
            id,
            diff_ids: image.layers.iter().map(|layer| layer.diff_id).collect(),
            existed: engine.image(&id.to_string()).await?.is_some(),
        };
        let (sent, trial) = upload.run(progress).await?;
        let (tagged, ()) = tokio::join!(engine.tag(&id, &self.request.tag), remove(engine, trial));
        tagged?;
        Ok(LoadedImage {
            id,
            layers: self.contents.layers.len(),
            sent,
        })
    }
}

/// One load into one engine.
struct Upload<'a> {
    engine: &'a Engine,
    load: &'a PreparedLoad<'a>,
    /// The id that the engine will give the image.
    id: Digest,
    diff_ids: Vec<Digest>,
    /// Whether the engine had an image of this id before.
    existed: bool,
}

impl Upload<'_> {
    /// Makes sure that the engine has the image, complete and untagged.
    async fn run(&self, progress: &mut dyn ProgressSink) -> Result<(SentLayers, Option<String>), ImageError> {
        if self.existed
            && let Ok(trial) = self.verify().await
        {
            return Ok((SentLayers::Nothing, trial));
        }
        let arrangement = &self.load.arrangement;
        if !arrangement.is_complete() {
            match self.send(arrangement, progress).await {
                Ok(trial) => return Ok((self.sent(arrangement), trial)),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => tracing::info!(error = %error_chain(&error), "sending all layers of the image"),
            }
        }
        let complete = arrangement.complete();
        let trial = self.send(&complete, progress).await?;
        Ok((self.sent(&complete), trial))
    }

    /// Sends the image and verifies it. An image that cannot be used is removed, unless it existed before.
    async fn send(
        &self,
        arrangement: &LayerArrangement,
        progress: &mut dyn ProgressSink,
    ) -> Result<Option<String>, ImageError> {
        let tag = self.load.request.tag.to_string();
        let outcome = match self.engine.load(&tag, self.archive(arrangement), progress).await {
            Ok(()) => self.verify().await,
            Err(error) => Err(error.into()),
        };
        let Err(error) = outcome else { return outcome };
        if !self.existed
            && let Err(error) = self.engine.remove_image(&self.id.to_string()).await
        {
            tracing::warn!(error = %error_chain(&error), "cannot remove an incomplete image");
        }
        if is_final(&error) {
            return Err(error);
        }
        Err(self.find_damage(arrangement).await.unwrap_or(error))
    }

    /// Hashes the layers that were sent, because engines do not say clearly that a layer is damaged.
    async fn find_damage(&self, arrangement: &LayerArrangement) -> Option<ImageError> {
        let (contents, source) = (self.load.contents.clone(), self.load.request.source.clone());
        let send = arrangement.send.clone();
        let verified = tokio::task::spawn_blocking(move || {
            let send: Vec<_> = send.iter().map(|at| &contents.layers[*at]).collect();
            partial_archive::verify(&send, &source)
        });
        let content = EngineError::Content {
            subject: self.load.request.tag.to_string(),
            source: verified.await.ok()?.err()?,
        };
        Some(content.into())
    }

    /// Checks that the engine has the image with all its layers and can use it. A graph driver refuses an image that
    /// lacks a layer. containerd accepts it silently, so a trial container is created there.
    async fn verify(&self) -> Result<Option<String>, ImageError> {
        let broken = |problem: ImageError| {
            let tag = &self.load.request.tag;
            ImageError::failed(format!("the engine loaded {tag} but cannot use it"))
                .with_cause(problem)
                .with_hint(
                    "the engine may have lost a layer: remove the images that share it, then try again",
                )
        };
        match self.engine.image(&self.id.to_string()).await? {
            None => Err(broken(ImageError::failed("the engine does not list it"))),
            Some(image) if image.diff_ids != self.diff_ids => Err(broken(ImageError::failed(
                "its layers are not those that were sent",
            ))),
            Some(_) if self.load.arrangement.omittable == OmittableLayers::Prefix => Ok(None),
            Some(_) => {
                let trial = self.engine.try_image(&self.id).await;
                trial.map(Some).map_err(|error| {
                    broken(ImageError::failed("no container can be created from it").with_cause(error))
                })
            }
        }
    }

    fn sent(&self, arrangement: &LayerArrangement) -> SentLayers {
        let layers = &self.load.contents.layers;
        let bytes = arrangement.send.iter().map(|at| layers[*at].size).sum();
        if arrangement.is_complete() {
            return SentLayers::Everything { bytes };
        }
        let layers = arrangement.send.len();
        SentLayers::Missing { layers, bytes }
    }

    fn archive(&self, arrangement: &LayerArrangement) -> TarStream {
        let (contents, request) = (self.load.contents.clone(), self.load.request.clone());
        let LayerArrangement {
            order,
            send,
            omittable,
        } = arrangement.clone();
        TarStream::written_by(move |out| {
            let image = ComposedImage::new(&contents, &order, &request.labels)?;
            let send: Vec<_> = send.iter().map(|at| &contents.layers[*at]).collect();
            partial_archive::write(out, &image, &send, &request.source, omittable)
        })
    }
}

async fn remove(engine: &Engine, trial: Option<String>) {
    if let Some(trial) = trial
        && let Err(error) = engine.remove_container(&trial).await
    {
        tracing::warn!(error = %error_chain(&error), "cannot remove a trial container");
    }
}

/// Whether sending all layers would fail the same way.
fn is_final(error: &ImageError) -> bool {
    matches!(
        error,
        ImageError::Engine(
            EngineError::Content { .. } | EngineError::DiskFull { .. } | EngineError::NoEngine { .. }
        )
    )
}
