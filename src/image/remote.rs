//! Images in a registry, where others find what was built once.

use super::agent::Platform;
use super::ensure::Observer;
use super::error::ImageError;
use super::fingerprint::Fingerprint;
use super::labels;
use super::plan::PlannedImage;
use super::pulls::PullOutcome;
use super::reference::ImageReference;
use super::tools::Tools;
use crate::engine::{Digest, Engine, EngineError, EngineImage, EngineImageReference};

/// A planned image, and where it is kept for others.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The image.
    pub image: PlannedImage,
    /// What it is called in the registry.
    pub remote: EngineImageReference,
    /// The machine that it is for.
    pub platform: Platform,
    /// The [digest](Fingerprint::digest) it must have, where somebody wrote it down.
    pub recorded: Option<Digest>,
}

impl Shared {
    /// An image in a registry (`ghcr.io/team`).
    pub fn at(registry: &str, image: PlannedImage, platform: Platform) -> Result<Self, ImageError> {
        let remote = EngineImageReference::parse(&format!("{registry}/{}", image.tag))?;
        Ok(Self {
            image,
            remote,
            platform,
            recorded: None,
        })
    }

    /// Pulls the image and, once it is known to be the planned one, gives it our tag.
    pub async fn pull(
        &self,
        engine: &Engine,
        tools: &Tools,
        observer: &mut dyn Observer,
    ) -> Result<(), ImageError> {
        let before = engine.image(&self.remote.to_string()).await?;
        engine
            .pull(&self.remote, self.platform.unless_of(engine), observer)
            .await?;
        let pulled = found(engine, &self.remote).await?;
        if let Err(error) = self.check(&pulled) {
            self.undo(engine, before).await?;
            return Err(error);
        }
        engine.tag(&pulled.id, &self.local()?).await?;
        self.remember(engine, tools);
        Ok(())
    }

    /// Pushes the image, which must be there.
    pub async fn push(&self, engine: &Engine, observer: &mut dyn Observer) -> Result<(), ImageError> {
        let tag = &self.image.tag;
        let Some(image) = engine.image(&tag.to_string()).await? else {
            return Err(ImageError::NotBuilt { tag: tag.clone() });
        };
        self.check(&image)?;
        let before = engine.image(&self.remote.to_string()).await?;
        engine.tag(&image.id, &self.remote).await?;
        if let Err(error) = engine.push(&self.remote, observer).await {
            self.undo(engine, before).await?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Whether an image is what its name says: a tag can be given to anything.
    fn check(&self, image: &EngineImage) -> Result<(), ImageError> {
        let claimed = image.labels.get(labels::HASH);
        if claimed != Some(&self.image.hash.hex()) {
            return Err(ImageError::Foreign {
                name: self.remote.to_string(),
                planned: self.image.hash,
                claimed: claimed.cloned(),
            });
        }
        let digest = Fingerprint::of(image).digest();
        match &self.recorded {
            Some(recorded) if *recorded != digest => Err(ImageError::NotAsRecorded {
                name: self.remote.to_string(),
                recorded: recorded.clone(),
                digest,
            }),
            _ => Ok(()),
        }
    }

    /// Leaves the name in the registry to the image that had it.
    async fn undo(&self, engine: &Engine, before: Option<EngineImage>) -> Result<(), EngineError> {
        match before {
            Some(image) => engine.tag(&image.id, &self.remote).await,
            None => engine.remove_image(&self.remote.to_string()).await,
        }
    }

    fn local(&self) -> Result<EngineImageReference, ImageError> {
        Ok(EngineImageReference::parse(&self.image.tag.to_string())?)
    }

    /// Only for people who ask where an image came from.
    fn remember(&self, engine: &Engine, tools: &Tools) {
        let Ok(name) = ImageReference::parse(&self.remote.to_string()) else {
            return;
        };
        let recorded = tools
            .pulls(engine)
            .record(&name, PullOutcome::Succeeded, tools.clock.now());
        if let Err(error) = recorded {
            tracing::warn!(%error, "a pull is not remembered");
        }
    }
}

/// The image under our tag, if it is the planned one.
pub async fn present(engine: &Engine, image: &PlannedImage) -> Result<Option<EngineImage>, EngineError> {
    let found = engine.image(&image.tag.to_string()).await?;
    Ok(found.filter(|found| found.labels.get(labels::HASH) == Some(&image.hash.hex())))
}

async fn found(engine: &Engine, name: &EngineImageReference) -> Result<EngineImage, EngineError> {
    let image = engine.image(&name.to_string()).await?;
    image.ok_or_else(|| EngineError::NotFound {
        subject: name.to_string(),
    })
}
