//! Errors as a person sees them: what, why, what next, and the exit code.

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

/// The exit codes, one meaning each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Exit {
    /// It worked.
    Success = 0,
    /// It did not work.
    Failure = 1,
    /// It was asked wrongly: usage, configuration or task.
    Usage = 2,
    /// It waits for a person.
    Paused = 3,
}

/// An error ready to be shown.
#[derive(Debug)]
pub(super) struct CliError {
    /// The exit code it leads to.
    pub(super) exit: Exit,
    /// What happened and why.
    pub(super) message: String,
    /// What to do next.
    pub(super) hint: Option<String>,
}

impl CliError {
    /// A mistake of the caller's.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
            hint: None,
        }
    }

    /// Something that did not work.
    pub(super) fn runtime(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failure,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds the next step.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn of(exit: Exit, error: &(dyn Error + 'static)) -> Self {
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
                AssemblyErrorKind::Usage => Exit::Usage,
                AssemblyErrorKind::Runtime => Exit::Failure,
                AssemblyErrorKind::Paused => Exit::Paused,
            },
            message: error.to_string(),
            hint: error.hint().map(ToOwned::to_owned),
        }
    }
}

/// Errors that a command shows as the library does.
macro_rules! shown_as_by_the_library {
    ($($error:ty),*) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                AssemblyError::from(error).into()
            }
        })*
    };
}

shown_as_by_the_library!(
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
    ScriptError,
    TaskError,
    UpstreamError
);

impl From<RunIdError> for CliError {
    fn from(error: RunIdError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}

impl From<StateError> for CliError {
    fn from(error: StateError) -> Self {
        let hint = match &error {
            StateError::NoSuchRun { .. } => Some("`ralph status` lists the runs"),
            StateError::Owned { .. } => Some("`ralph stop RUN` ends it, `ralph logs -f RUN` shows it"),
            StateError::Corrupt { .. } => {
                Some("the run's state ref in the repository still holds its last checkpoint")
            }
            StateError::Io { .. } => None,
        };
        Self::from(AssemblyError::from(error)).maybe_hint(hint)
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::State(error) => error.into(),
            error @ RunError::StateRefGone { .. } => Self::of(Exit::Failure, &error)
                .hint("fetch it from where it was pushed to, or `ralph run` the task again"),
            error => AssemblyError::from(error).into(),
        }
    }
}

/// For `map_err`: an I/O error with what was tried on which path.
pub(super) fn io(operation: &str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> CliError {
    let failed = assembly::io(operation, path);
    move |error| failed(error).into()
}
