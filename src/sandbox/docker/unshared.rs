//! Engines whose containers cannot have a workspace that is a directory of this machine.

use thiserror::Error;

use super::super::{SandboxError, SandboxErrorKind};

/// Why an engine's containers cannot share a workspace with this machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unshared {
    /// It is reached over a network.
    #[error("the engine at {endpoint} is not on this machine")]
    Remote {
        /// Its address.
        endpoint: String,
    },
    /// Who owns a file inside is somebody else outside.
    #[error("the engine gives users inside other numbers outside (`userns-remap`)")]
    Remapped,
}

impl Unshared {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Remote { .. } => {
                "use an engine of this machine (unset DOCKER_HOST, or `docker context use default`), or run ralph where \
                 the engine is; `--type daytona` works from anywhere"
            }
            Self::Remapped => {
                "use a rootless engine, which keeps its containers from root as well, or take `userns-remap` out of \
                 the engine's settings; or choose another provider with `--type`"
            }
        }
    }
}

impl From<Unshared> for SandboxError {
    fn from(cause: Unshared) -> Self {
        let message = "the `docker` provider cannot share a workspace with the containers of this engine";
        let hint = cause.hint();
        Self::new(SandboxErrorKind::Failed, message)
            .with_cause(cause)
            .with_hint(Some(hint))
    }
}
