//! Builds an image from a Dockerfile.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bollard::body_try_stream;
use bollard::errors::Error as ApiError;
use bollard::query_parameters::{BuildImageOptions, BuilderVersion};
use futures_util::StreamExt;

use super::log::BuildLog;
use super::transfer::prefer_writer_error;
use super::{Engine, EngineError, EngineImage, EngineImageReference, EngineKind, TarStream, buildx};
use crate::exec::OutputSink;

/// The input of a build.
#[derive(Debug)]
pub struct ImageBuild {
    /// The build context, which contains the Dockerfile.
    pub context: TarStream,
    /// The path of the Dockerfile in the context.
    pub dockerfile: String,
    /// Build arguments. They must not be secret, because they are visible in the image.
    pub build_args: BTreeMap<String, String>,
    /// The labels of the image.
    pub labels: BTreeMap<String, String>,
    /// The tag of the image.
    pub tag: EngineImageReference,
    /// The platform to build for (`linux/arm64`); `None` is the platform of the engine.
    pub platform: Option<String>,
    /// Whether layers of earlier builds are reused.
    pub use_cache: bool,
    /// The file that the whole log is written to.
    pub log: PathBuf,
}

impl Engine {
    /// Builds an image: with `docker buildx` when that is installed, otherwise with the builder of the engine. The output
    /// goes to `output` line by line, and to the log. An image for another platform loses its tag again and is an error.
    pub async fn build(
        &self,
        build: ImageBuild,
        output: &mut dyn OutputSink,
    ) -> Result<EngineImage, EngineError> {
        let tag = build.tag.to_string();
        let wanted = build.platform.clone();
        let mut log = BuildLog::create(&build.log, output)?;
        let has_buildkit = self.kind == EngineKind::Docker;
        if has_buildkit && buildx::is_installed(self).await {
            buildx::build(self, build, &mut log).await?;
        } else {
            self.build_classic(build, &mut log).await?;
        }
        let image = self.image(&tag).await?.ok_or_else(|| log.build_error(&tag))?;
        match (wanted, &image.platform) {
            (Some(wanted), Some(found)) if *found != wanted => {
                self.remove_image(&tag).await?;
                Err(EngineError::OtherPlatform {
                    image: tag,
                    found: found.clone(),
                    wanted,
                    source: None,
                })
            }
            _ => Ok(image),
        }
    }

    async fn build_classic(&self, build: ImageBuild, log: &mut BuildLog<'_>) -> Result<(), EngineError> {
        let tag = build.tag.to_string();
        let options = BuildImageOptions {
            dockerfile: build.dockerfile,
            t: Some(tag.clone()),
            nocache: !build.use_cache,
            rm: true,
            forcerm: true,
            buildargs: Some(build.build_args.into_iter().collect()),
            labels: Some(build.labels.into_iter().collect()),
            platform: build.platform.unwrap_or_default(),
            version: BuilderVersion::BuilderV1,
            ..Default::default()
        };
        let (context, writer) = build.context.start();
        let docker = self.long_running();
        let mut steps = docker
            .build_image(options, None, Some(body_try_stream(context)))
            .boxed();
        let mut outcome = Ok(());
        while let Some(step) = steps.next().await {
            match step {
                Ok(step) => log.push(
                    &step
                        .stream
                        .or(step.status.map(|line| line + "\n"))
                        .unwrap_or_default(),
                ),
                Err(error) => outcome = Err(failed(&tag, error, log)),
            }
        }
        drop(steps);
        prefer_writer_error(&tag, outcome, writer).await
    }
}

/// The error of a failed step. A full disk and an unreachable registry keep their own kinds.
fn failed(tag: &str, error: ApiError, log: &mut BuildLog<'_>) -> EngineError {
    let ApiError::DockerStreamError { error: message } = &error else {
        return EngineError::from_api(tag, error);
    };
    log.push(&format!("{message}\n"));
    match EngineError::from_api(tag, error) {
        EngineError::Api { .. } => log.build_error(tag),
        known => known,
    }
}
