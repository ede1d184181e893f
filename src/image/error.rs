//! Errors of images.

use std::error::Error as StdError;
use std::io;
use std::path::Path;

use thiserror::Error;

use crate::engine::{EngineError, EngineImageReferenceError};
use crate::nix::NixError;

/// Why an image could not be planned, built or shared.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The flake cannot be read.
    #[error(transparent)]
    Nix(#[from] NixError),
    /// Anything else.
    #[error("{message}")]
    Other {
        /// What failed.
        message: String,
        /// What the user can do next.
        hint: Option<&'static str>,
        /// Whether the user must correct a file or an argument.
        is_user_error: bool,
        /// The cause.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

impl ImageError {
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::Other {
            message: message.into(),
            hint: None,
            is_user_error: false,
            source: None,
        }
    }

    /// A file or an argument that the user must correct.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        let mut error = Self::failed(message);
        if let Self::Other { is_user_error, .. } = &mut error {
            *is_user_error = true;
        }
        error
    }

    /// For `map_err`: a file operation that failed.
    pub(super) fn io(operation: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let failed = Self::failed(format!("cannot {operation} `{}`", path.display()));
        |cause| failed.with_cause(cause)
    }

    pub(super) fn with_cause(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        if let Self::Other { source, .. } = &mut self {
            *source = Some(cause.into());
        }
        self
    }

    pub(super) fn with_hint(mut self, next: impl Into<Option<&'static str>>) -> Self {
        if let Self::Other { hint, .. } = &mut self {
            *hint = next.into();
        }
        self
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Nix(error) => error.hint(),
            Self::Other { hint, .. } => *hint,
        }
    }

    /// Whether the user must correct a file or an argument.
    #[must_use]
    pub fn is_user_error(&self) -> bool {
        matches!(
            self,
            Self::Other {
                is_user_error: true,
                ..
            }
        )
    }
}

impl From<EngineImageReferenceError> for ImageError {
    fn from(error: EngineImageReferenceError) -> Self {
        Self::invalid(error.to_string())
    }
}
