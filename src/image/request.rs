//! What a user asks for. Reading it chooses how the image is built, and hashes what it is built from.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::context::BuildContext;
use super::environment::BuildEnvironment;
use super::error::ImageError;
use super::flake::{FlakeImage, ProjectFlake, SkippedFlake};
use super::platform::Platform;
use super::project::ProjectLayer;
use super::reference::ImageReference;
use super::spec::{BuildMode, DEFAULT_REFRESH, DockerfileContext, ImageSpec, Rebuild};
use super::stages;
use crate::agent::AgentImage;
use crate::engine::Engine;
use crate::nix::{Attribute, FlakeInputs, FlakeOutput, FlakeRef};

/// The image that an agent's Dockerfile starts from by default.
pub const DEFAULT_BASE: &str = "debian:trixie-slim";

/// The image that a user asks for, before any file was read.
#[derive(Clone, Debug)]
pub struct ImageRequest {
    /// The main worktree of the user's repository, never the agent's clone.
    pub project: PathBuf,
    /// The agent that works in it.
    pub agent: AgentImage,
    /// The platform that it is for; `None` is the engine's own.
    pub platform: Option<Platform>,
    /// What it is built from.
    pub source: BuildSource,
    /// The image that a Dockerfile starts from, in place of [`DEFAULT_BASE`].
    pub base: Option<ImageReference>,
    /// When to build.
    pub rebuild: Rebuild,
    /// The base is pulled again if ralph's last pull is older.
    pub refresh_after: Duration,
}

/// What an image is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildSource {
    /// The project's own flake, if it has the image and Nix is installed; else the agent's template.
    Project {
        /// The package that is the image.
        attribute: Attribute,
        /// The files that it depends on.
        inputs: FlakeInputs,
    },
    /// The agent's template.
    Template,
    /// A Dockerfile of the user, with its directory as build context.
    Dockerfile(PathBuf),
    /// A flake.
    Flake {
        /// Where it is.
        flake: FlakeRef,
        /// The package that is the image.
        attribute: Attribute,
    },
}

/// What an image is built from, read and hashed.
#[derive(Clone, Debug)]
pub struct ImageRecipe {
    /// The image to build.
    pub spec: ImageSpec,
    /// Why the project's own flake is not used, if there is one.
    pub skipped_flake: Option<SkippedFlake>,
    pub(super) flake: Option<FlakeImage>,
}

impl ImageRequest {
    /// The image of a project, with the defaults of the configuration.
    pub fn for_project(main_worktree: impl Into<PathBuf>, agent: AgentImage) -> Self {
        Self {
            project: main_worktree.into(),
            agent,
            platform: None,
            source: BuildSource::Project {
                attribute: Attribute::docker_image(),
                inputs: FlakeInputs::Tracked,
            },
            base: None,
            rebuild: Rebuild::WhenNeeded,
            refresh_after: DEFAULT_REFRESH,
        }
    }

    /// Reads and hashes everything that the image is built from. Without an engine, the platform is the host's.
    pub async fn read(
        &self,
        engine: Option<&Engine>,
        environment: &BuildEnvironment,
    ) -> Result<ImageRecipe, ImageError> {
        let native = || match engine {
            Some(engine) => Platform::linux_on(engine.arch()),
            None => Platform::of_host(),
        };
        let platform = self.platform.or_else(native).ok_or_else(|| {
            ImageError::failed("unsupported processor: images are built for linux/amd64 and linux/arm64")
                .with_hint("name the platform explicitly")
        })?;
        let (mode, flake, skipped_flake) = match self.find_flake(platform, environment).await? {
            ProjectFlake::Usable(flake) => (flake.mode(), Some(flake), None),
            ProjectFlake::Skipped(reason) => (self.template()?, None, Some(reason)),
            ProjectFlake::Absent => match &self.source {
                BuildSource::Dockerfile(path) => (self.dockerfile(path, environment).await?, None, None),
                _ => (self.template()?, None, None),
            },
        };
        let hashes = environment.context_hashes();
        let layer = read_blocking(&self.project, move |project| {
            ProjectLayer::read(&project, &hashes)
        });
        let spec = ImageSpec::new(self.agent, platform, mode, layer.await??)?;
        Ok(ImageRecipe {
            spec: ImageSpec {
                rebuild: self.rebuild,
                refresh_after: self.refresh_after,
                requires_platform: self.platform.is_some(),
                ..spec
            },
            skipped_flake,
            flake,
        })
    }

    async fn find_flake(
        &self,
        platform: Platform,
        environment: &BuildEnvironment,
    ) -> Result<ProjectFlake, ImageError> {
        let output = |attribute: &Attribute| FlakeOutput {
            system: platform.nix_system(),
            attribute: attribute.clone(),
        };
        Ok(match &self.source {
            BuildSource::Template | BuildSource::Dockerfile(_) => ProjectFlake::Absent,
            BuildSource::Flake { flake, attribute } => {
                let output = output(attribute);
                let image = FlakeImage::read(flake, output, &FlakeInputs::Tracked, environment);
                ProjectFlake::Usable(image.await?)
            }
            BuildSource::Project { attribute, inputs } => {
                ProjectFlake::find(&self.project, output(attribute), inputs, environment).await?
            }
        })
    }

    fn template(&self) -> Result<BuildMode, ImageError> {
        BuildMode::from_template(self.agent, self.base()?)
    }

    async fn dockerfile(&self, path: &Path, environment: &BuildEnvironment) -> Result<BuildMode, ImageError> {
        let text = fs::read_to_string(path).map_err(ImageError::io("access", path))?;
        let base = stages::base_image(&text, self.base()?).map_err(|reason| {
            ImageError::invalid(format!("invalid Dockerfile `{}`", path.display()))
                .with_cause(reason)
                .with_hint(
                    "start it from an image (`FROM debian:12`), or with `ARG BASE_IMAGE` and `FROM ${BASE_IMAGE}`",
                )
        })?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let hashes = environment.context_hashes();
        let context = read_blocking(directory, move |root| BuildContext::read(&root, &[], &hashes)).await??;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = DockerfileContext {
            name: name.into_owned(),
            text,
            context,
        };
        Ok(BuildMode::Dockerfile { base, file })
    }

    fn base(&self) -> Result<ImageReference, ImageError> {
        match &self.base {
            Some(base) => Ok(base.clone()),
            None => Ok(ImageReference::parse(DEFAULT_BASE)?),
        }
    }
}

/// Reads below a directory on a thread that may block.
async fn read_blocking<T: Send + 'static>(
    directory: &Path,
    read: impl FnOnce(PathBuf) -> T + Send + 'static,
) -> Result<T, ImageError> {
    let owned = directory.to_owned();
    tokio::task::spawn_blocking(move || read(owned))
        .await
        .map_err(|error| ImageError::io("access", directory)(error.into()))
}
