//! The warm way into a container: a session with the guest over one exec that stays open.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::super::session::{Session, SessionError, Surroundings};
use super::guest::{Guest, INSIDE};
use super::plain::Plain;
use super::plan::ROOT;
use crate::engine::{EngineError, ExecInput, ExecSpec};

/// Where an engine looks for programs when an image does not say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The session of one sandbox: opened when it is first needed, and again after it was lost.
#[derive(Debug)]
pub(super) struct Warm {
    plain: Plain,
    grace: Duration,
    slot: tokio::sync::Mutex<Slot>,
    notices: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum Slot {
    Closed,
    Open(Arc<Session>),
    /// There can be none: commands go the engine's way.
    Never,
}

impl Warm {
    pub(super) fn new(plain: Plain, guest: &Guest, grace: Duration) -> Self {
        let warm = Self {
            plain,
            grace,
            slot: tokio::sync::Mutex::new(Slot::Closed),
            notices: Mutex::default(),
        };
        match guest {
            Guest::Here(_) => warm,
            Guest::Missing(reason) => {
                warm.tell_cold(reason);
                Self {
                    slot: tokio::sync::Mutex::new(Slot::Never),
                    ..warm
                }
            }
        }
    }

    /// The session; `None` where there can be none.
    pub(super) async fn session(&self) -> Result<Option<Arc<Session>>, EngineError> {
        let mut slot = self.slot.lock().await;
        match &*slot {
            Slot::Never => return Ok(None),
            Slot::Open(session) if session.is_open() => return Ok(Some(session.clone())),
            Slot::Open(_) | Slot::Closed => {}
        }
        match self.open().await? {
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

    /// Keeps something for a person to know.
    pub(super) fn tell(&self, notice: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.push(notice);
    }

    /// What was kept, once.
    pub(super) fn notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell_cold(&self, reason: &dyn std::fmt::Display) {
        self.tell(format!(
            "commands go by the engine's own exec, which takes longer and tells signals as exit codes: {reason}"
        ));
    }

    async fn open(&self) -> Result<Result<Session, SessionError>, EngineError> {
        let Plain { engine, container } = &self.plain;
        let found = engine.container(container).await?;
        let found = found.ok_or_else(|| EngineError::NotFound {
            subject: container.clone(),
        })?;
        let spec = ExecSpec {
            argv: [INSIDE, "session"].map(str::to_owned).to_vec(),
            env: std::collections::BTreeMap::new(),
            cwd: Some(PathBuf::from("/")),
            input: ExecInput::Streamed,
        };
        let mut exec = engine.exec(container, &spec).await?;
        let to_guest = exec.input.take().ok_or_else(|| EngineError::Answer {
            subject: container.clone(),
            reason: "it gave no way to write to the guest".to_owned(),
        })?;
        let mut env = found.env;
        env.entry("PATH".to_owned())
            .or_insert_with(|| USUAL_PATH.to_owned());
        let surroundings = Surroundings {
            sandbox: container.clone(),
            env,
            dir: PathBuf::from(ROOT),
            grace: self.grace,
        };
        Ok(Session::open(exec.into_stdout(), to_guest, surroundings).await)
    }
}
