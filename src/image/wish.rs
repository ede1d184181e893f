//! What a user asks for. Reading it chooses how the image is built, and hashes what it is built from.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::agent::Platform;
use super::context::Context;
use super::error::ImageError;
use super::flake::{FlakeImage, PassedOver, ProjectFlake};
use super::project::ProjectLayer;
use super::reference::ImageReference;
use super::spec::{ImageSpec, Mode, OwnDockerfile, Rebuild};
use super::stages;
use super::tools::Tools;
use crate::agent::AgentImage;
use crate::engine::Engine;
use crate::nix::{Attribute, FlakeInputs, FlakeOutput, FlakeRef};

/// The image that a user asks for, before any file was read.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The main worktree of the user's repository, never the agent's clone.
    pub project: PathBuf,
    /// The agent that works in it.
    pub agent: AgentImage,
    /// The machine that it is for; `None` is the engine's own.
    pub platform: Option<Platform>,
    /// What it is made from.
    pub origin: Origin,
    /// The image that a Dockerfile starts from, in place of the agent's own.
    pub base: Option<ImageReference>,
    /// When to build.
    pub rebuild: Rebuild,
    /// How old ralph's last pull of the base may be.
    pub refresh_after: Duration,
}

/// What an image is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The project's own flake, where it has the image and Nix is installed; else the agent's template.
    Project {
        /// The package that is the image.
        attribute: Attribute,
        /// The files that it depends on.
        inputs: FlakeInputs,
    },
    /// The agent's template.
    Template,
    /// A Dockerfile of the user's, with its directory as build context.
    Dockerfile(PathBuf),
    /// This flake.
    Flake {
        /// Which one.
        flake: FlakeRef,
        /// The package that is the image.
        attribute: Attribute,
    },
}

/// What an image is built from, read and hashed.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The image that is wanted.
    pub spec: ImageSpec,
    /// Why the project's own flake is not used, where there is one.
    pub passed_over: Option<PassedOver>,
    pub(super) flake: Option<FlakeImage>,
}

impl Wish {
    /// Reads and hashes everything that the image is built from. Without an engine, as if it were on this machine.
    pub async fn read(&self, engine: Option<&Engine>, tools: &Tools) -> Result<Recipe, ImageError> {
        let platform = self.platform_on(engine)?;
        let chosen = self.choose(platform, tools).await?;
        let contexts = tools.contexts();
        let layer = off_thread(&self.project, move |project| {
            ProjectLayer::read(&project, &contexts)
        });
        let spec = ImageSpec::new(self.agent, platform, chosen.mode, layer.await??)?;
        Ok(Recipe {
            spec: spec.rebuild(self.rebuild).refresh_after(self.refresh_after),
            passed_over: chosen.passed_over,
            flake: chosen.flake,
        })
    }

    fn platform_on(&self, engine: Option<&Engine>) -> Result<Platform, ImageError> {
        let its_own = || match engine {
            Some(engine) => Platform::linux_on(engine.arch()),
            None => Platform::of_host(),
        };
        self.platform.or_else(its_own).ok_or(ImageError::Processor)
    }

    async fn choose(&self, platform: Platform, tools: &Tools) -> Result<Chosen, ImageError> {
        let output = |attribute: &Attribute| FlakeOutput {
            system: platform.nix_system(),
            attribute: attribute.clone(),
        };
        match &self.origin {
            Origin::Template => self.template(None),
            Origin::Dockerfile(path) => self.dockerfile(path, tools).await.map(Chosen::from),
            Origin::Flake { flake, attribute } => {
                let image = FlakeImage::read(flake, output(attribute), &FlakeInputs::Tracked, tools);
                Ok(image.await?.into())
            }
            Origin::Project { attribute, inputs } => {
                match ProjectFlake::find(&self.project, output(attribute), inputs, tools).await? {
                    ProjectFlake::Usable(image) => Ok(image.into()),
                    ProjectFlake::PassedOver(reason) => self.template(Some(reason)),
                    ProjectFlake::Absent => self.template(None),
                }
            }
        }
    }

    fn template(&self, passed_over: Option<PassedOver>) -> Result<Chosen, ImageError> {
        let mode = Mode::from_template(self.agent, self.base())?;
        Ok(Chosen {
            passed_over,
            ..Chosen::from(mode)
        })
    }

    async fn dockerfile(&self, path: &Path, tools: &Tools) -> Result<Mode, ImageError> {
        let text = fs::read_to_string(path).map_err(ImageError::file(path))?;
        let base = stages::foundation(&text, self.base()).map_err(|source| ImageError::Stages {
            path: path.to_owned(),
            source,
        })?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let contexts = tools.contexts();
        let context = off_thread(directory, move |root| Context::read(&root, &[], &contexts)).await??;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let file = OwnDockerfile { name, text, context };
        Ok(Mode::File { base, file })
    }

    fn base(&self) -> ImageReference {
        let own = || ImageReference::default_base(self.agent);
        self.base.clone().unwrap_or_else(own)
    }
}

/// How an image is built.
struct Chosen {
    mode: Mode,
    flake: Option<FlakeImage>,
    passed_over: Option<PassedOver>,
}

impl From<Mode> for Chosen {
    fn from(mode: Mode) -> Self {
        Self {
            mode,
            flake: None,
            passed_over: None,
        }
    }
}

impl From<FlakeImage> for Chosen {
    fn from(image: FlakeImage) -> Self {
        Self {
            mode: image.mode(),
            flake: Some(image),
            passed_over: None,
        }
    }
}

/// Reads below a directory without holding up whatever else goes on.
async fn off_thread<T: Send + 'static>(
    directory: &Path,
    read: impl FnOnce(PathBuf) -> T + Send + 'static,
) -> Result<T, ImageError> {
    let owned = directory.to_owned();
    tokio::task::spawn_blocking(move || read(owned))
        .await
        .map_err(|error| ImageError::file(directory)(error.into()))
}
