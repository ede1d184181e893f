//! The warm session of one sandbox: opened when it is first needed, and again after it was lost.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::SandboxError;
use super::session::{SessionError, WarmSession};
use crate::exec::{CapturedOutput, Command, Exit, ExitStatus, OutputSink};

const SIGKILL: i32 = 9;

/// Opens warm sessions with the guest in one sandbox.
#[async_trait]
pub(super) trait SessionOpener: Send + Sync {
    /// The outer error means that the sandbox cannot be reached, the inner one that only the guest does not work.
    async fn open(&self) -> Result<Result<WarmSession, SessionError>, SandboxError>;
}

/// The warm session of one sandbox.
#[derive(Debug)]
pub(super) struct SessionSlot<O> {
    opener: O,
    state: tokio::sync::Mutex<SlotState>,
    notices: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum SlotState {
    Closed,
    Open(Arc<WarmSession>),
    /// The guest does not work in this sandbox.
    Impossible,
}

impl<O: SessionOpener> SessionSlot<O> {
    /// A slot whose session is not open yet.
    pub(super) fn new(opener: O) -> Self {
        Self {
            opener,
            state: tokio::sync::Mutex::new(SlotState::Closed),
            notices: Mutex::default(),
        }
    }

    /// A slot for a sandbox that has no guest.
    pub(super) fn without_guest(opener: O, reason: &str) -> Self {
        let mut slot = Self::new(opener);
        slot.state = tokio::sync::Mutex::new(SlotState::Impossible);
        slot.notice_missing_session(&reason);
        slot
    }

    /// The open session, or a new one. `None` if the guest does not work in this sandbox.
    pub(super) async fn session(&self) -> Result<Option<Arc<WarmSession>>, SandboxError> {
        let mut state = self.state.lock().await;
        match &*state {
            SlotState::Impossible => return Ok(None),
            SlotState::Open(session) if session.is_open() => return Ok(Some(session.clone())),
            SlotState::Open(_) | SlotState::Closed => {}
        }
        match self.opener.open().await? {
            Ok(session) => {
                let session = Arc::new(session);
                *state = SlotState::Open(session.clone());
                Ok(Some(session))
            }
            Err(error) => {
                self.notice_missing_session(&error);
                *state = SlotState::Impossible;
                Ok(None)
            }
        }
    }

    /// Removes and returns the session if it is open.
    async fn take(&self) -> Option<Arc<WarmSession>> {
        let mut state = self.state.lock().await;
        match &*state {
            SlotState::Impossible | SlotState::Closed => None,
            SlotState::Open(session) => {
                let session = session.clone();
                *state = SlotState::Closed;
                Some(session)
            }
        }
    }

    /// Closes the session without waiting for its commands.
    pub(super) async fn close(&self) {
        self.take().await;
    }

    /// Lets the guest end its commands, so that each of them gets an exit status, and closes the session. A guest that
    /// fails at this does not matter: the caller kills all processes afterwards.
    pub(super) async fn end_commands(&self) {
        if let Some(session) = self.take().await {
            let _ = session.end_processes().await;
        }
    }

    /// The exit of a command whose session was lost while the sandbox kept running: a process inside killed the guest.
    /// The next command opens another session.
    async fn exit_after_lost_session(&self, command: &Command, lost: &SessionError) -> Exit {
        self.close().await;
        let notice = format!("lost the warm session with the sandbox, reopening it: {lost}");
        let mut stderr = CapturedOutput::with_limit(command.keep);
        stderr.push(notice.as_bytes());
        self.add_notice(notice);
        Exit {
            status: ExitStatus::Signal(SIGKILL),
            duration: Duration::ZERO,
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

    fn notice_missing_session(&self, reason: &dyn fmt::Display) {
        self.add_notice(format!(
            "no warm session, using one exec per command (slower; signals appear as exit codes): {reason}"
        ));
    }
}

/// A sandbox that runs commands in a warm session, or one by one if its guest does not work.
#[async_trait]
pub(super) trait WarmSandbox: Sync {
    /// Opens its sessions.
    type Opener: SessionOpener;

    /// Its warm session.
    fn slot(&self) -> &SessionSlot<Self::Opener>;

    /// Why no command can run any more; `None` while the sandbox runs.
    async fn unusable_reason(&self) -> Result<Option<SandboxError>, SandboxError>;

    /// Runs a command without the guest.
    async fn exec_plain(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError>;

    /// Runs a command in the warm session if there is one.
    async fn exec_warm(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        let session = match self.slot().session().await {
            Ok(Some(session)) => session,
            Ok(None) => return self.exec_plain(command, output).await,
            Err(error) => return Err(self.unusable_reason().await?.unwrap_or(error)),
        };
        let error = match session.exec(command, output).await {
            Ok(exit) => return Ok(exit),
            Err(error) => error,
        };
        match error.cause::<SessionError>() {
            None => Err(error),
            Some(lost) => match self.unusable_reason().await? {
                Some(reason) => Err(reason),
                None => Ok(self.slot().exit_after_lost_session(command, lost).await),
            },
        }
    }
}
