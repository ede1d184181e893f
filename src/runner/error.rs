//! Errors that end a run, and rules that end it.

use thiserror::Error;

use crate::evidence::AttachError;
use crate::gateway::meter::MeterError;
use crate::model::ModelError;
use crate::sandbox::{SandboxError, SandboxErrorKind};
use crate::scm::{ForgeError, ScmError};
use crate::state::{IterationVerdict, RunOutcomeKind, StateError};
use crate::task::{PullRequestTemplateError, TaskError};
use crate::text::counted;

use super::preflight::PreflightFailure;
use super::prompt::PromptError;

/// An error that ends a run. Everything recorded so far is kept, and the run can be resumed.
#[derive(Debug, Error)]
pub enum RunError {
    /// The run directory, the journal or the lock.
    #[error(transparent)]
    State(#[from] StateError),
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Git or the private clone failed.
    #[error(transparent)]
    Scm(#[from] ScmError),
    /// The signed evidence could not be kept.
    #[error(transparent)]
    Evidence(#[from] AttachError),
    /// The pull request could not be opened.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// The task is not valid.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The text of the pull request could not be rendered.
    #[error(transparent)]
    Template(#[from] PullRequestTemplateError),
    /// The prompt could not be rendered.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// A model call failed in a way that neither waiting nor a person can fix, such as an exhausted script.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The meter cannot record what agent programs use.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// A check before the run failed. Nothing was started.
    #[error("not ready to begin: {}", join(.0))]
    NotReady(Vec<PreflightFailure>),
    /// The settings do not contain this profile.
    #[error("there is no model profile `{0}`")]
    NoProfile(String),
    /// The journal has iterations whose work is in no checkpoint.
    #[error("the ref `{name}` is gone from the repository, and with it the work of {}", counted(*recorded, "iteration"))]
    StateRefGone {
        /// The state ref of the run.
        name: String,
        /// The number of recorded iterations.
        recorded: usize,
    },
    /// The run cannot be opened, or a trial session of an agent failed.
    #[error("{0}")]
    Refused(String),
}

impl RunError {
    /// Whether another process took the run over. This one may write nothing any more.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        matches!(self, Self::State(StateError::TakenOver { .. }))
    }
}

fn join(failures: &[PreflightFailure]) -> String {
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    failures.join("; ")
}

/// Whether the sandbox or its provider failed. Otherwise only the request did: the command, the path or the file.
pub(super) fn is_sandbox_fault(kind: SandboxErrorKind) -> bool {
    match kind {
        SandboxErrorKind::Lost
        | SandboxErrorKind::Unreachable
        | SandboxErrorKind::Unavailable
        | SandboxErrorKind::DiskFull
        | SandboxErrorKind::Failed => true,
        SandboxErrorKind::Unsupported
        | SandboxErrorKind::NotStarted
        | SandboxErrorKind::File
        | SandboxErrorKind::TooLong
        | SandboxErrorKind::Host => false,
    }
}

/// Why the loop stops: by a rule or by an error.
#[derive(Debug)]
pub(super) enum Halt {
    /// A rule ends the run.
    End { kind: RunOutcomeKind, reason: String },
    /// An error.
    Broken(RunError),
}

impl Halt {
    pub(super) fn end(kind: RunOutcomeKind, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::End { kind, reason }
    }

    pub(super) fn failed(reason: impl Into<String>) -> Self {
        Self::end(RunOutcomeKind::Failed, reason)
    }

    pub(super) fn paused(reason: impl Into<String>) -> Self {
        Self::end(RunOutcomeKind::Paused, reason)
    }

    pub(super) fn stopped() -> Self {
        Self::end(RunOutcomeKind::Stopped, "stopped by a person")
    }

    /// Ends the run if the verdict does.
    pub(super) fn from_verdict(verdict: IterationVerdict) -> Result<(), Self> {
        match verdict {
            IterationVerdict::GoOn | IterationVerdict::Complete => Ok(()),
            IterationVerdict::Failed { reason } => Err(Self::failed(reason)),
            IterationVerdict::Paused { reason } => Err(Self::paused(reason)),
        }
    }
}

macro_rules! breaks {
    ($($error:ty),*) => {$(
        impl From<$error> for Halt {
            fn from(error: $error) -> Self {
                Self::Broken(error.into())
            }
        }
    )*};
}

breaks!(
    RunError,
    StateError,
    SandboxError,
    ScmError,
    ForgeError,
    PromptError,
    ModelError,
    MeterError
);
