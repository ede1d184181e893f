//! Errors of images.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::context::BuildContextError;
use super::load::LoadError;
use super::lock::LockError;
use super::project::ProjectError;
use super::spec::SpecError;
use super::stages::StagesError;
use super::tag::ImageTag;
use super::templates::TemplateError;
use crate::digest::Digest;
use crate::engine::{EngineError, EngineImageReferenceError};
use crate::nix::NixError;

/// Why an image could not be planned, built or shared.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The engine's processor is not supported.
    #[error("unsupported processor: images are built for linux/amd64 and linux/arm64")]
    Processor,
    /// The project's layer is not valid.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// The request contradicts itself.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The agent's Dockerfile template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A Dockerfile of the user does not say what it starts from.
    #[error("invalid Dockerfile `{}`", path.display())]
    Stages {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: StagesError,
    },
    /// The build context of a Dockerfile of the user.
    #[error(transparent)]
    Context(#[from] BuildContextError),
    /// An invalid image reference.
    #[error(transparent)]
    Name(#[from] EngineImageReferenceError),
    /// The flake cannot be read.
    #[error(transparent)]
    Nix(#[from] NixError),
    /// The flake's image could not be built.
    #[error("{source}\nthe full log is in `{}`", log.display())]
    NixBuild {
        /// Why.
        source: NixError,
        /// The full log.
        log: PathBuf,
    },
    /// The result of a Nix build could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// `ralph.lock` is not usable.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The image was not built.
    #[error("the engine does not have {tag}")]
    NotBuilt {
        /// Its tag.
        tag: ImageTag,
    },
    /// An image does not have the planned content.
    #[error(
        "{name} is not the planned image: expected content hash {}, found {}",
        planned.hex(),
        actual.as_deref().unwrap_or("none")
    )]
    HashMismatch {
        /// Its name in the registry.
        name: String,
        /// The planned content hash.
        planned: Digest,
        /// The content hash in its labels.
        actual: Option<String>,
    },
    /// An image is not the one that `ralph.lock` records.
    #[error("{name} does not match ralph.lock: expected {recorded}, found {digest}")]
    LockMismatch {
        /// Its name in the registry.
        name: String,
        /// The recorded digest.
        recorded: Digest,
        /// Its digest.
        digest: Digest,
    },
    /// A file operation failed.
    #[error("cannot access `{}`", path.display())]
    File {
        /// The file.
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
            Self::Processor => Some("name the platform explicitly"),
            Self::Project(error) => error.hint(),
            Self::Spec(error) => error.hint(),
            Self::Stages { .. } => Some(
                "start it from an image (`FROM debian:12`), or with `ARG BASE_IMAGE` and `FROM ${BASE_IMAGE}`",
            ),
            Self::Context(error) => error.hint(),
            Self::Nix(error) | Self::NixBuild { source: error, .. } => error.hint(),
            Self::Load(error) => error.hint(),
            Self::Lock(error) => error.hint(),
            Self::NotBuilt { .. } => Some("build it first, with `ralph image build`"),
            Self::HashMismatch { .. } => Some(
                "our tag was not changed; `ralph image build` and `ralph image push` replace the one in the registry",
            ),
            Self::LockMismatch { .. } => Some(
                "our tag was not changed; if the change is intended, build the image and record it in ralph.lock",
            ),
            Self::Template(_) | Self::Name(_) | Self::File { .. } => None,
        }
    }

    /// Whether the user must correct a file or an argument.
    #[must_use]
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Spec(_)
            | Self::Stages { .. }
            | Self::Name(_)
            | Self::Lock(LockError::Invalid { .. })
            | Self::Project(ProjectError::Dependencies { .. } | ProjectError::Stages { .. }) => true,
            Self::Project(ProjectError::Context(error)) | Self::Context(error) => {
                !matches!(error, BuildContextError::Read { .. })
            }
            Self::Engine(_)
            | Self::Processor
            | Self::Project(ProjectError::Read { .. } | ProjectError::Template(_))
            | Self::Template(_)
            | Self::Nix(_)
            | Self::NixBuild { .. }
            | Self::Load(_)
            | Self::Lock(LockError::Io { .. })
            | Self::NotBuilt { .. }
            | Self::HashMismatch { .. }
            | Self::LockMismatch { .. }
            | Self::File { .. } => false,
        }
    }

    /// For `map_err`: a file operation that failed.
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}
