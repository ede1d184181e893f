//! Errors of commands, with a hint and an exit code.

use std::error::Error;
use std::fmt::Display;

use crate::assembly::{self, AssemblyError, AssemblyErrorKind};
use crate::config::ConfigError;
use crate::credential::{CredentialError, LoginError};
use crate::engine::EngineError;
use crate::gateway::audit::AuditError;
use crate::gateway::broker::{BrokerError, UpstreamError};
use crate::gateway::meter::MeterError;
use crate::id::RunIdError;
use crate::image::ImageError;
use crate::model::ScriptError;
use crate::runner::RunError;
use crate::sandbox::SandboxError;
use crate::scm::ScmError;
use crate::state::StateError;
use crate::task::TaskError;

use crate::text::error_chain;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CliExit {
    /// The command succeeded.
    Success = 0,
    /// The command failed.
    Failure = 1,
    /// The arguments, the configuration or the task are wrong.
    Usage = 2,
    /// The run waits for a person.
    Paused = 3,
}

/// An error of a command.
#[derive(Debug)]
pub(super) struct CliError {
    /// The exit code it leads to.
    pub(super) exit: CliExit,
    /// What happened and why.
    pub(super) message: String,
    /// What to do next.
    pub(super) hint: Option<String>,
}

impl CliError {
    /// A mistake in the arguments, the configuration or the task.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: CliExit::Usage,
            message: message.into(),
            hint: None,
        }
    }

    /// A failure.
    pub(super) fn runtime(message: impl Into<String>) -> Self {
        Self {
            exit: CliExit::Failure,
            message: message.into(),
            hint: None,
        }
    }

    /// Sets what to do next.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An error of the library, with its causes.
    pub(super) fn from_error(exit: CliExit, error: &(dyn Error + 'static)) -> Self {
        Self {
            exit,
            message: error_chain(error),
            hint: None,
        }
    }

    pub(super) fn maybe_hint(mut self, hint: Option<impl Display>) -> Self {
        self.hint = hint.map(|hint| hint.to_string());
        self
    }
}

impl From<AssemblyError> for CliError {
    fn from(error: AssemblyError) -> Self {
        Self {
            exit: match error.kind() {
                AssemblyErrorKind::Usage => CliExit::Usage,
                AssemblyErrorKind::Runtime => CliExit::Failure,
                AssemblyErrorKind::Paused => CliExit::Paused,
            },
            message: error.to_string(),
            hint: error.hint().map(ToOwned::to_owned),
        }
    }
}

/// Errors with the kind and hint that the library gives them.
macro_rules! from_library_errors {
    ($($error:ty),*) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                AssemblyError::from(error).into()
            }
        })*
    };
}

from_library_errors!(
    AuditError,
    BrokerError,
    ConfigError,
    CredentialError,
    EngineError,
    ImageError,
    LoginError,
    MeterError,
    SandboxError,
    ScmError,
    RunError,
    ScriptError,
    StateError,
    TaskError,
    UpstreamError
);

impl From<RunIdError> for CliError {
    fn from(error: RunIdError) -> Self {
        Self::from_error(CliExit::Usage, &error)
    }
}

/// For `map_err`: an I/O error with what was tried on which path.
pub(super) fn io(operation: &str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> CliError {
    let failed = assembly::io(operation, path);
    move |error| failed(error).into()
}

/// A directory that is removed when it is dropped.
pub(super) fn temp_dir() -> Result<tempfile::TempDir, CliError> {
    tempfile::tempdir()
        .map_err(|error| CliError::runtime(format!("cannot create a temporary directory: {error}")))
}
