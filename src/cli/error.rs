//! Errors as a person sees them: what, why, what next, and the exit code.

use std::error::Error;
use std::fmt::Display;

use crate::config::ConfigError;
use crate::engine::EngineError;
use crate::id::RunIdError;
use crate::image::ImageError;
use crate::model::ScriptError;
use crate::runner::RunError;
use crate::sandbox::SandboxError;
use crate::scm::ScmError;
use crate::state::StateError;
use crate::task::TaskError;

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
            message: chain(error),
            hint: None,
        }
    }

    pub(super) fn maybe_hint(mut self, hint: Option<impl Display>) -> Self {
        self.hint = hint.map(|hint| hint.to_string());
        self
    }
}

/// An error and its causes. A cause whose text its parent already shows is left out.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        next = cause.source();
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::of(Exit::Usage, &error).maybe_hint(error.hint())
    }
}

impl From<TaskError> for CliError {
    fn from(error: TaskError) -> Self {
        Self::of(Exit::Usage, &error).maybe_hint(Some(error.hint()))
    }
}

impl From<RunIdError> for CliError {
    fn from(error: RunIdError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}

impl From<ScriptError> for CliError {
    fn from(error: ScriptError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}

impl From<StateError> for CliError {
    fn from(error: StateError) -> Self {
        let (exit, hint) = match &error {
            StateError::NoSuchRun { .. } => (Exit::Usage, Some("`ralph status` lists the runs")),
            StateError::Owned { .. } => (
                Exit::Failure,
                Some("`ralph stop RUN` ends it, `ralph logs -f RUN` shows it"),
            ),
            StateError::Corrupt { .. } => (
                Exit::Failure,
                Some("the run's state ref in the repository still holds its last checkpoint"),
            ),
            StateError::Io { .. } => (Exit::Failure, None),
        };
        Self::of(exit, &error).maybe_hint(hint)
    }
}

impl From<ScmError> for CliError {
    fn from(error: ScmError) -> Self {
        let exit = match &error {
            ScmError::NotARepository { .. } | ScmError::Incomplete { .. } | ScmError::UnknownRevision(_) => {
                Exit::Usage
            }
            _ => Exit::Failure,
        };
        Self::of(exit, &error).maybe_hint(error.hint())
    }
}

impl From<SandboxError> for CliError {
    fn from(error: SandboxError) -> Self {
        let exit = match &error {
            SandboxError::Unavailable { .. } | SandboxError::Unsupported { .. } => Exit::Usage,
            _ => Exit::Failure,
        };
        Self::of(exit, &error).maybe_hint(error.hint())
    }
}

impl From<ImageError> for CliError {
    fn from(error: ImageError) -> Self {
        let exit = if error.is_mistake() {
            Exit::Usage
        } else {
            Exit::Failure
        };
        Self::of(exit, &error).maybe_hint(error.hint())
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        ImageError::from(error).into()
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::State(error) => error.into(),
            RunError::Sandbox(error) => error.into(),
            RunError::Scm(error) => error.into(),
            RunError::Task(error) => error.into(),
            error @ RunError::StateRefGone { .. } => Self::of(Exit::Failure, &error)
                .hint("fetch it from where it was pushed to, or `ralph run` the task again"),
            RunError::NotReady(ref lacks) => {
                let steps: Vec<&str> = lacks.iter().map(|lack| lack.next_step.as_str()).collect();
                Self::of(Exit::Failure, &error).hint(steps.join("; "))
            }
            RunError::Model(error) => Self::of(Exit::Failure, &error).maybe_hint(Some(error.hint())),
            error => Self::of(Exit::Failure, &error),
        }
    }
}

/// For `map_err`: an I/O error with what was tried on which path.
pub(super) fn io(operation: &str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> CliError {
    let message = format!("cannot {operation} `{}`", path.display());
    move |error| CliError::runtime(format!("{message}: {error}"))
}
