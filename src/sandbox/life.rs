//! Whether commands may start in a sandbox.

use std::sync::{PoisonError, RwLock};

use super::SandboxError;

/// Whether commands may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Stopped,
    Closed,
}

/// The state of one sandbox, as far as this process brought it about.
#[derive(Debug)]
pub(super) struct Life(RwLock<State>);

impl Life {
    /// Of a sandbox that runs.
    pub(super) fn running() -> Self {
        Self(RwLock::new(State::Running))
    }

    pub(super) fn state(&self) -> State {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves to another state; one that is closed stays so.
    pub(super) fn enter(&self, next: State, id: &str) -> Result<(), SandboxError> {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if *state == State::Closed && next != State::Closed {
            return Err(SandboxError::gone(id));
        }
        *state = next;
        Ok(())
    }
}
