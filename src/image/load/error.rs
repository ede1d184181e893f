//! Errors of image loads.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::source::LoadSource;
use crate::engine::EngineError;

/// Why an image could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The image cannot be read.
    #[error("cannot read the image in `{}`", path.display())]
    Read {
        /// The archive, or the program that prints it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The content is not an image, or not in a known format.
    #[error("`{}` is not a loadable image: {reason}", path.display())]
    NotAnImage {
        /// The archive, or the program that prints it.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The engine accepted the image and cannot use it.
    #[error("the engine loaded {tag} but cannot use it")]
    Broken {
        /// The tag that it should have got.
        tag: String,
        /// What is wrong with it.
        #[source]
        problem: BrokenImage,
    },
}

/// What is wrong with an image that an engine accepted.
#[derive(Debug, Error)]
pub enum BrokenImage {
    /// The engine does not have it.
    #[error("the engine does not list it")]
    Missing,
    /// It has other layers than those that were sent.
    #[error("its layers are not those that were sent")]
    OtherLayers,
    /// No container can be created from it.
    #[error("no container can be created from it")]
    NoContainer(#[source] EngineError),
}

impl LoadError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Read { .. } | Self::NotAnImage { .. } => Some("build the image again"),
            Self::Broken { .. } => {
                Some("the engine may have lost a layer: remove the images that share it, then try again")
            }
        }
    }

    pub(super) fn read(source: &LoadSource, error: io::Error) -> Self {
        Self::Read {
            path: source.path().to_owned(),
            source: error,
        }
    }
}
