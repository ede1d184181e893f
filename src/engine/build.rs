//! Building an image from a Dockerfile.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bollard::body_try_stream;
use bollard::errors::Error as ApiError;
use bollard::query_parameters::{BuildImageOptions, BuilderVersion};
use futures_util::StreamExt;

use super::log::BuildLog;
use super::transfer::blame;
use super::{Engine, EngineError, Flavour, Image, Reference, TarStream, buildx};
use crate::exec::OutputSink;

/// A build to be done.
#[derive(Debug)]
pub struct Build {
    /// The files it can see, the Dockerfile among them.
    pub context: TarStream,
    /// The path of the Dockerfile within the context.
    pub dockerfile: String,
    /// What `ARG` lines are given. No secret belongs here: an image shows them.
    pub build_args: BTreeMap<String, String>,
    /// Labels of the image.
    pub labels: BTreeMap<String, String>,
    /// The name of the image.
    pub tag: Reference,
    /// The platform it is for (`linux/arm64`); the engine's own when `None`.
    pub platform: Option<String>,
    /// Where the base comes from.
    pub base: Base,
    /// What becomes of the layers that earlier builds left.
    pub cache: BuildCache,
    /// Where the whole log is written.
    pub log: PathBuf,
}

/// Where a build takes its base image from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// From the engine; from its registry when the engine has none of that name.
    Present,
    /// From its registry, always.
    Pulled,
}

/// Whether a build takes over the layers that earlier builds left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildCache {
    /// Where nothing changed.
    Use,
    /// Never: every instruction is carried out anew.
    Ignore,
}

impl Engine {
    /// Builds an image: with `docker buildx` where that is installed, else with the engine's own builder. What is
    /// printed goes to `output` line by line and to the log.
    pub async fn build(&self, build: Build, output: &mut dyn OutputSink) -> Result<Image, EngineError> {
        let tag = build.tag.to_string();
        let mut log = BuildLog::create(&build.log, output)?;
        let has_buildkit = self.flavour == Flavour::Docker;
        if has_buildkit && buildx::is_installed(self).await {
            buildx::build(self, build, &mut log).await?;
        } else {
            self.build_classic(build, &mut log).await?;
        }
        let image = self.image(&tag).await?;
        image.ok_or_else(|| log.failed(&tag))
    }

    async fn build_classic(&self, build: Build, log: &mut BuildLog<'_>) -> Result<(), EngineError> {
        let tag = build.tag.to_string();
        let options = BuildImageOptions {
            dockerfile: build.dockerfile,
            t: Some(tag.clone()),
            pull: (build.base == Base::Pulled).then(|| "1".to_owned()),
            nocache: build.cache == BuildCache::Ignore,
            rm: true,
            forcerm: true,
            buildargs: Some(build.build_args.into_iter().collect()),
            labels: Some(build.labels.into_iter().collect()),
            platform: build.platform.unwrap_or_default(),
            version: BuilderVersion::BuilderV1,
            ..Default::default()
        };
        let (context, writer) = build.context.start();
        let docker = self.patient();
        let mut steps = docker
            .build_image(options, None, Some(body_try_stream(context)))
            .boxed();
        let mut outcome = Ok(());
        while let Some(step) = steps.next().await {
            match step {
                Ok(step) => log.text(
                    &step
                        .stream
                        .or(step.status.map(|line| line + "\n"))
                        .unwrap_or_default(),
                ),
                Err(error) => outcome = Err(failed(&tag, error, log)),
            }
        }
        drop(steps);
        blame(&tag, outcome, writer).await
    }
}

/// A step that failed is a failed build; a full disk and a registry out of reach are what they are.
fn failed(tag: &str, error: ApiError, log: &mut BuildLog<'_>) -> EngineError {
    let ApiError::DockerStreamError { error: message } = &error else {
        return EngineError::from_api(tag, error);
    };
    log.text(&format!("{message}\n"));
    match EngineError::from_api(tag, error) {
        EngineError::Api { .. } => log.failed(tag),
        known => known,
    }
}
