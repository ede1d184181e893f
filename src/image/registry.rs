//! Images in a registry, where others can pull what was built once.

use super::builder::{ImageBuilder, ImageObserver};
use super::error::ImageError;
use super::fingerprint::ImageFingerprint;
use super::labels;
use super::plan::PlannedImage;
use super::platform::Platform;
use super::pulls::PullOutcome;
use super::reference::ImageReference;
use super::tag::ImageTag;
use crate::digest::Digest;
use crate::engine::{EngineError, EngineImage, EngineImageReference};
use crate::text::error_chain;

/// A planned image, and its name in a registry.
#[derive(Clone, Debug)]
pub struct RegistryImage {
    /// The image.
    pub image: PlannedImage,
    /// Its name in the registry.
    pub remote: EngineImageReference,
    /// The platform that it is for.
    pub platform: Platform,
    /// The [digest](ImageFingerprint::digest) that it must have, if `ralph.lock` records one.
    pub recorded: Option<Digest>,
}

impl RegistryImage {
    /// An image in a registry (`ghcr.io/team`).
    pub fn new(registry: &str, image: PlannedImage, platform: Platform) -> Result<Self, ImageError> {
        let remote = EngineImageReference::parse(&format!("{registry}/{}", image.tag))?;
        Ok(Self {
            image,
            remote,
            platform,
            recorded: None,
        })
    }

    /// Pulls the image and, if it is the planned one, gives it our tag.
    pub async fn pull(
        &self,
        builder: &ImageBuilder,
        observer: &mut dyn ImageObserver,
    ) -> Result<(), ImageError> {
        let ImageBuilder { engine, environment } = builder;
        let name = self.remote.to_string();
        let before = engine.image(&name).await?;
        let platform = self.platform.unless_native(engine);
        engine.pull(&self.remote, platform, observer).await?;
        let pulled = engine.image(&name).await?;
        let pulled = pulled.ok_or_else(|| EngineError::NotFound {
            subject: name.clone(),
        })?;
        if let Err(error) = self.verify(&pulled) {
            self.restore(builder, before).await;
            return Err(error);
        }
        engine.tag(&pulled.id, &self.image.tag.to_reference()?).await?;
        // `ralph image status` shows where an image was pulled from.
        if let Ok(name) = ImageReference::parse(&name) {
            let log = environment.pulls(engine);
            log.record(&name, PullOutcome::Succeeded, environment.clock.now());
        }
        Ok(())
    }

    /// Pushes the image, which must have been built.
    pub async fn push(
        &self,
        builder: &ImageBuilder,
        observer: &mut dyn ImageObserver,
    ) -> Result<(), ImageError> {
        let engine = &builder.engine;
        let tag = &self.image.tag;
        let Some(image) = engine.image(&tag.to_string()).await? else {
            return Err(not_built(tag));
        };
        self.verify(&image)?;
        let before = engine.image(&self.remote.to_string()).await?;
        engine.tag(&image.id, &self.remote).await?;
        if let Err(error) = engine.push(&self.remote, observer).await {
            self.restore(builder, before).await;
            return Err(error.into());
        }
        Ok(())
    }

    /// Checks that an image has the planned content, because any image can be given our tag.
    fn verify(&self, image: &EngineImage) -> Result<(), ImageError> {
        let actual = image.labels.get(labels::HASH);
        if actual != Some(&self.image.hash.hex()) {
            return Err(ImageError::failed(format!(
                "{} is not the planned image: expected content hash {}, found {}",
                self.remote,
                self.image.hash.hex(),
                actual.map_or("none", String::as_str)
            ))
            .with_hint(
                "our tag was not changed; `ralph image build` and `ralph image push` replace the one in the registry",
            ));
        }
        let digest = ImageFingerprint::new(image).digest();
        match self.recorded {
            Some(recorded) if recorded != digest => Err(ImageError::failed(format!(
                "{} does not match ralph.lock: expected {recorded}, found {digest}",
                self.remote
            ))
            .with_hint(
                "our tag was not changed; if the change is intended, build the image and record it in ralph.lock",
            )),
            _ => Ok(()),
        }
    }

    /// Gives the name in the registry back to the image that had it. A failure is only logged, because the caller reports
    /// why the name has to be given back.
    async fn restore(&self, builder: &ImageBuilder, before: Option<EngineImage>) {
        let restored = match before {
            Some(image) => builder.engine.tag(&image.id, &self.remote).await,
            None => builder.engine.remove_image(&self.remote.to_string()).await,
        };
        if let Err(error) = restored {
            tracing::warn!(error = %error_chain(&error), image = %self.remote, "cannot give the name back to its earlier image");
        }
    }
}

pub(super) fn not_built(tag: &ImageTag) -> ImageError {
    ImageError::failed(format!("the engine does not have {tag}"))
        .with_hint("build it first, with `ralph image build`")
}
