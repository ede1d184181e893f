//! Why there is no image.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::context::ContextError;
use super::load::LoadError;
use super::project::ProjectError;
use super::spec::SpecError;
use super::stages::StagesError;
use super::tag::ImageTag;
use super::templates::TemplateError;
use crate::digest::Digest;
use crate::engine::{EngineError, EngineImageReferenceError};
use crate::nix::NixError;

/// Why there is no image.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The engine runs on a machine that no images are made for.
    #[error("no images are made for the processor that the engine runs on")]
    Processor,
    /// What the project adds cannot be used.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// The wish contradicts itself.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The agent's own Dockerfile.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A Dockerfile of the user's does not say what it starts from.
    #[error("`{}` cannot be used", path.display())]
    Stages {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: StagesError,
    },
    /// The files around a Dockerfile of the user's.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// A name that engines do not take.
    #[error(transparent)]
    Name(#[from] EngineImageReferenceError),
    /// The flake cannot be looked at.
    #[error(transparent)]
    Nix(#[from] NixError),
    /// The flake's image could not be built.
    #[error("{source}\nits log is {}", log.display())]
    NixBuild {
        /// Why.
        source: NixError,
        /// The whole log.
        log: PathBuf,
    },
    /// What Nix built could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An image to be pushed is not there.
    #[error("{tag} is not there")]
    NotBuilt {
        /// Its tag.
        tag: ImageTag,
    },
    /// An image is not what its name says.
    #[error(
        "{name} is not the planned image: its content hash is {}, not {}",
        claimed.as_deref().unwrap_or("missing"),
        planned.hex()
    )]
    Foreign {
        /// Its name in the registry.
        name: String,
        /// The hash of what is planned.
        planned: Digest,
        /// The hash that it carries.
        claimed: Option<String>,
    },
    /// An image is another than the one that was written down.
    #[error("{name} is not the image that was recorded: it is {digest}, not {recorded}")]
    NotAsRecorded {
        /// Its name in the registry.
        name: String,
        /// What was written down.
        recorded: Digest,
        /// What it is.
        digest: Digest,
    },
    /// A file that cannot be used.
    #[error("`{}` cannot be used", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ImageError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Processor => {
                Some("`--platform linux/amd64` or `--platform linux/arm64` makes one for another")
            }
            Self::Project(error) => error.hint(),
            Self::Spec(error) => error.hint(),
            Self::Stages { .. } => Some(
                "start it from an image (`FROM debian:12`), or with `ARG BASE_IMAGE` and `FROM ${BASE_IMAGE}`",
            ),
            Self::Context(error) => error.hint(),
            Self::Nix(error) | Self::NixBuild { source: error, .. } => error.hint(),
            Self::Load(error) => error.hint(),
            Self::NotBuilt { .. } => Some("`ralph image build` builds it"),
            Self::Foreign { .. } => Some(
                "it was not given our tag; `ralph image build` and `ralph image push` put the right one there",
            ),
            Self::NotAsRecorded { .. } => Some(
                "it was not given our tag; if it is the right one, `ralph image build --lock` records the one you have",
            ),
            Self::Template(_) | Self::Name(_) | Self::File { .. } => None,
        }
    }

    /// Whether the user must change what they wrote: nothing else would help.
    #[must_use]
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::Spec(_)
            | Self::Stages { .. }
            | Self::Name(_)
            | Self::Project(ProjectError::Dependencies { .. } | ProjectError::Stages { .. }) => true,
            Self::Project(ProjectError::Context(error)) | Self::Context(error) => {
                !matches!(error, ContextError::Read { .. })
            }
            Self::Engine(_)
            | Self::Processor
            | Self::Project(ProjectError::Read { .. } | ProjectError::Template(_))
            | Self::Template(_)
            | Self::Nix(_)
            | Self::NixBuild { .. }
            | Self::Load(_)
            | Self::NotBuilt { .. }
            | Self::Foreign { .. }
            | Self::NotAsRecorded { .. }
            | Self::File { .. } => false,
        }
    }

    /// For `map_err`: the failure of an operation on a file.
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}
