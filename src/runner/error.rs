//! What ends a run against its will, and what ends it by rule.

use thiserror::Error;

use crate::gateway::meter::MeterError;
use crate::model::ModelError;
use crate::sandbox::SandboxError;
use crate::scm::{ForgeError, ScmError};
use crate::state::{RunOutcomeKind, StateError};
use crate::task::{PullRequestTemplateError, TaskError};

use super::budget::BudgetExceeded;
use super::notebook::NotebookError;
use super::preflight::PreflightFailure;
use super::prompt::PromptError;

/// What ends a run against its will. Everything recorded so far is kept and `ralph resume` goes on from there.
#[derive(Debug, Error)]
pub enum RunError {
    /// The run's own files.
    #[error(transparent)]
    State(#[from] StateError),
    /// The sandbox.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Git.
    #[error(transparent)]
    Scm(#[from] ScmError),
    /// The forge.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// The task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The pull request's template.
    #[error(transparent)]
    Template(#[from] PullRequestTemplateError),
    /// The prompt.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The scripted model ran out of answers, or the like.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// What agent programs use cannot be written down.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// Something that a run needs is not as it must be. Nothing was begun.
    #[error("not ready to begin: {}", told(.0))]
    NotReady(Vec<PreflightFailure>),
    /// A profile that nothing defines.
    #[error("there is no model profile `{0}`")]
    NoProfile(String),
    /// The journal tells of iterations whose work is nowhere.
    #[error("`{name}` is gone from the repository, and with it the work of {recorded} iterations")]
    StateRefGone {
        /// The ref.
        name: String,
        /// How many iterations are recorded.
        recorded: usize,
    },
    /// A run that cannot be taken up.
    #[error("{0}")]
    Refused(String),
}

fn told(lacks: &[PreflightFailure]) -> String {
    let lacks: Vec<String> = lacks.iter().map(ToString::to_string).collect();
    lacks.join("; ")
}

impl From<NotebookError> for RunError {
    fn from(error: NotebookError) -> Self {
        match error {
            NotebookError::State(error) => Self::State(error),
            NotebookError::Sandbox(error) => Self::Sandbox(error),
        }
    }
}

/// Why the work stops here. Not all of it is an error.
#[derive(Debug)]
pub(super) enum Halt {
    /// A rule ends the run.
    End { kind: RunOutcomeKind, reason: String },
    /// Something broke.
    Broken(RunError),
}

impl Halt {
    pub(super) fn failed(reason: impl Into<String>) -> Self {
        Self::End {
            kind: RunOutcomeKind::Failed,
            reason: reason.into(),
        }
    }

    pub(super) fn paused(reason: impl Into<String>) -> Self {
        Self::End {
            kind: RunOutcomeKind::Paused,
            reason: reason.into(),
        }
    }

    pub(super) fn stopped(reason: impl Into<String>) -> Self {
        Self::End {
            kind: RunOutcomeKind::Stopped,
            reason: reason.into(),
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
    TaskError,
    PullRequestTemplateError,
    PromptError,
    ModelError,
    MeterError,
    NotebookError
);

impl From<BudgetExceeded> for Halt {
    fn from(exceeded: BudgetExceeded) -> Self {
        Self::failed(format!("budget exceeded: {exceeded}"))
    }
}
