//! Whether commands may start in a sandbox.

use std::sync::{PoisonError, RwLock};

use super::SandboxError;

/// Whether commands may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LifecycleState {
    Running,
    Stopped,
    Closed,
}

/// The state of one sandbox, as far as this process changed it.
#[derive(Debug)]
pub(super) struct Lifecycle(RwLock<LifecycleState>);

impl Lifecycle {
    /// The state of a sandbox that runs.
    pub(super) fn running() -> Self {
        Self(RwLock::new(LifecycleState::Running))
    }

    pub(super) fn state(&self) -> LifecycleState {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves to another state. A closed sandbox stays closed.
    pub(super) fn enter(&self, next: LifecycleState, sandbox: &str) -> Result<(), SandboxError> {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if *state == LifecycleState::Closed && next != LifecycleState::Closed {
            return Err(SandboxError::gone(sandbox));
        }
        *state = next;
        Ok(())
    }

    /// Fails unless the sandbox runs.
    pub(super) fn check_running(&self, sandbox: &str) -> Result<(), SandboxError> {
        self.while_running(sandbox, || ())
    }

    /// Calls `start` if the sandbox runs. The state does not change meanwhile.
    pub(super) fn while_running<T>(
        &self,
        sandbox: &str,
        start: impl FnOnce() -> T,
    ) -> Result<T, SandboxError> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match *state {
            LifecycleState::Running => Ok(start()),
            LifecycleState::Stopped => Err(SandboxError::stopped(sandbox)),
            LifecycleState::Closed => Err(SandboxError::gone(sandbox)),
        }
    }
}
