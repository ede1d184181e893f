//! Why an image could not be loaded.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::source::Source;
use crate::engine::EngineError;

/// Why an image could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The image cannot be read.
    #[error("the image in `{}` cannot be read", path.display())]
    Read {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no image, or one of a kind we do not know.
    #[error("`{}` holds no image that can be loaded: {reason}", path.display())]
    NotAnImage {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The engine took the image and cannot use it.
    #[error("the engine took {tag} and cannot use it")]
    Broken {
        /// The name it should have got.
        tag: String,
        /// What is wrong with it.
        #[source]
        flaw: Flaw,
    },
}

/// What is wrong with an image that was sent.
#[derive(Debug, Error)]
pub enum Flaw {
    /// It is not there.
    #[error("the engine took it and does not have it")]
    Missing,
    /// It is another than the one that was sent.
    #[error("the engine has other layers than it was sent")]
    OtherLayers,
    /// It cannot be started from.
    #[error("the engine can make no container from it")]
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

    pub(super) fn read(source: &Source, error: io::Error) -> Self {
        Self::Read {
            path: source.path().to_owned(),
            source: error,
        }
    }
}
