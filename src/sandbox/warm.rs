//! The warm way into a sandbox: one session, opened when it is first needed and again after it was lost.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::session::{Session, SessionError};
use crate::exec::{CapturedOutput, Command, Exit, ExitStatus};

/// The signal that ends what nothing else does.
const SIGKILL: i32 = 9;

/// Opens sessions with the guest in one sandbox.
#[async_trait]
pub(super) trait Opener: Send + Sync {
    /// What is said when the sandbox itself is out of reach.
    type Error;

    /// Opens one. The inner error: the sandbox is well, but nobody in it can be spoken with.
    async fn open(&self) -> Result<Result<Session, SessionError>, Self::Error>;
}

/// The session of one sandbox.
#[derive(Debug)]
pub(super) struct Warm<O> {
    opener: O,
    slot: tokio::sync::Mutex<Slot>,
    notices: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum Slot {
    Closed,
    Open(Arc<Session>),
    /// There can be none: commands go one by one.
    Never,
}

impl<O: Opener> Warm<O> {
    /// A session that is yet to be opened.
    pub(super) fn new(opener: O) -> Self {
        Self::with(opener, Slot::Closed)
    }

    /// No session, for this reason.
    pub(super) fn never(opener: O, reason: &str) -> Self {
        let warm = Self::with(opener, Slot::Never);
        warm.tell_cold(&reason);
        warm
    }

    fn with(opener: O, slot: Slot) -> Self {
        Self {
            opener,
            slot: tokio::sync::Mutex::new(slot),
            notices: Mutex::default(),
        }
    }

    /// The session; `None` where there can be none.
    pub(super) async fn session(&self) -> Result<Option<Arc<Session>>, O::Error> {
        let mut slot = self.slot.lock().await;
        match &*slot {
            Slot::Never => return Ok(None),
            Slot::Open(session) if session.is_open() => return Ok(Some(session.clone())),
            Slot::Open(_) | Slot::Closed => {}
        }
        match self.opener.open().await? {
            Ok(session) => {
                let session = Arc::new(session);
                *slot = Slot::Open(session.clone());
                Ok(Some(session))
            }
            Err(error) => {
                self.tell_cold(&error);
                *slot = Slot::Never;
                Ok(None)
            }
        }
    }

    /// The session, if one is open; it is forgotten here.
    pub(super) async fn take(&self) -> Option<Arc<Session>> {
        let mut slot = self.slot.lock().await;
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Open(session) => Some(session),
            Slot::Closed => None,
            Slot::Never => {
                *slot = Slot::Never;
                None
            }
        }
    }

    /// What became of a command whose session was lost while the sandbox is well: something inside ended it. The
    /// next command opens another session.
    pub(super) async fn survive(&self, command: &Command, lost: &SessionError) -> Exit {
        self.take().await;
        let notice = format!("the session with the sandbox was lost and is opened again: {lost}");
        let mut stderr = CapturedOutput::with_limit(command.keep);
        stderr.push(notice.as_bytes());
        self.tell(notice);
        Exit {
            status: ExitStatus::Signal(SIGKILL),
            duration: Duration::ZERO,
            stdout: CapturedOutput::with_limit(command.keep),
            stderr,
            streams_held: true,
        }
    }

    /// Keeps something for a person to know.
    pub(super) fn tell(&self, notice: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.push(notice);
    }

    /// What was kept, once.
    pub(super) fn notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell_cold(&self, reason: &dyn fmt::Display) {
        self.tell(format!(
            "commands go one by one, which takes longer and tells signals as exit codes: {reason}"
        ));
    }
}
