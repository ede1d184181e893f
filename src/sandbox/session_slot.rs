//! The warm session of one sandbox: opened when it is first needed, and again after it was lost.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::SandboxError;
use super::session::{SessionError, WarmSession};
use crate::exec::{CapturedOutput, Command, Exit, ExitStatus, OutputSink};

const SIGKILL: i32 = 9;

/// The warm session of one sandbox.
#[derive(Debug)]
pub(super) struct SessionSlot {
    state: tokio::sync::Mutex<SlotState>,
    notices: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct SlotState {
    session: Option<Arc<WarmSession>>,
    /// Whether the guest may work in this sandbox.
    has_guest: bool,
}

impl SessionSlot {
    /// A slot whose session is not open yet, or never opens for this reason.
    pub(super) fn new(missing_guest: Option<&str>) -> Self {
        let state = SlotState {
            session: None,
            has_guest: missing_guest.is_none(),
        };
        Self {
            state: tokio::sync::Mutex::new(state),
            notices: Mutex::new(missing_guest.iter().map(missing_session).collect()),
        }
    }

    /// Closes the session without waiting for its commands.
    pub(super) async fn close(&self) {
        self.state.lock().await.session = None;
    }

    /// Lets the guest end its commands, so that each of them gets an exit status, and closes the session. A guest that
    /// fails at this does not matter: the caller kills all processes afterwards.
    pub(super) async fn end_commands(&self) {
        let session = self.state.lock().await.session.take();
        if let Some(session) = session {
            let _ = session.end_processes().await;
        }
    }

    /// The exit of a command whose session was lost while the sandbox kept running: a process inside killed the guest.
    /// The next command opens another session.
    async fn exit_after_lost_session(
        &self,
        command: &Command,
        started: Instant,
        lost: &SessionError,
    ) -> Exit {
        self.close().await;
        let notice = format!("lost the warm session with the sandbox, reopening it: {lost}");
        let mut stderr = CapturedOutput::with_limit(command.keep);
        stderr.push(notice.as_bytes());
        self.add_notice(notice);
        Exit {
            status: ExitStatus::Signal(SIGKILL),
            duration: started.elapsed(),
            stdout: CapturedOutput::with_limit(command.keep),
            stderr,
            streams_held: true,
        }
    }

    /// Adds a message for [`Sandbox::notices`](super::Sandbox::notices).
    pub(super) fn add_notice(&self, notice: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.push(notice);
    }

    /// Returns each notice once.
    pub(super) fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The notice for a sandbox without a warm session.
fn missing_session(reason: impl fmt::Display) -> String {
    format!("no warm session, using one exec per command (slower; signals appear as exit codes): {reason}")
}

/// A sandbox that runs commands in a warm session, or one by one if its guest does not work.
#[async_trait]
pub(super) trait WarmSandbox: Sync {
    /// Its warm session.
    fn slot(&self) -> &SessionSlot;

    /// Opens a session with the guest. The outer error means that the sandbox cannot be reached, the inner one that only
    /// the guest does not work.
    async fn open_session(&self) -> Result<Result<WarmSession, SessionError>, SandboxError>;

    /// Why no command can run any more; `None` while the sandbox runs.
    async fn unusable_reason(&self) -> Result<Option<SandboxError>, SandboxError>;

    /// Like [`Self::unusable_reason`], after something in the sandbox was killed. If the sandbox itself is ending, waits
    /// until its provider knows that.
    async fn lost_reason(&self) -> Result<Option<SandboxError>, SandboxError> {
        self.unusable_reason().await
    }

    /// Runs a command without the guest.
    async fn exec_plain(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError>;

    /// The open session, or a new one. `None` if the guest does not work in this sandbox.
    async fn session(&self) -> Result<Option<Arc<WarmSession>>, SandboxError> {
        let mut state = self.slot().state.lock().await;
        let is_open = state.session.as_ref().is_some_and(|session| session.is_open());
        if state.has_guest && !is_open {
            match self.open_session().await? {
                Ok(session) => state.session = Some(Arc::new(session)),
                Err(error) => {
                    self.slot().add_notice(missing_session(error));
                    *state = SlotState {
                        session: None,
                        has_guest: false,
                    };
                }
            }
        }
        Ok(state.session.clone())
    }

    /// Runs a command in the warm session if there is one.
    async fn exec_warm(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        let session = match self.session().await {
            Ok(Some(session)) => session,
            Ok(None) => return self.exec_plain(command, output).await,
            Err(error) => return Err(self.unusable_reason().await?.unwrap_or(error)),
        };
        let started = Instant::now();
        let error = match session.exec(command, output).await {
            Ok(exit) => return Ok(exit),
            Err(error) => error,
        };
        match error.cause::<SessionError>() {
            None => Err(error),
            Some(lost) => match self.lost_reason().await? {
                Some(reason) => Err(reason),
                None => Ok(self.slot().exit_after_lost_session(command, started, lost).await),
            },
        }
    }
}
