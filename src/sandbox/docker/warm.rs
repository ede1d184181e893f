//! The warm way into a container: a session with the guest over one exec that stays open.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::super::session::{Session, SessionError, Surroundings};
use super::door::{self, Door};
use super::guest::{Guest, INSIDE};
use super::plain::Plain;
use super::plan::ROOT;
use crate::engine::{EngineError, ExecInput, ExecSpec};

/// Where an engine looks for programs when an image does not say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long a guest may take to come to the door.
const COMING: Duration = Duration::from_secs(20);

/// The session of one sandbox: opened when it is first needed, and again after it was lost.
#[derive(Debug)]
pub(super) struct Warm {
    plain: Plain,
    /// The directory of its door on the host.
    door: PathBuf,
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
    /// For a container that sees the directory `door` of the host.
    pub(super) fn new(plain: Plain, guest: &Guest, door: PathBuf, grace: Duration) -> Self {
        let warm = Self {
            plain,
            door,
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
        // Without a door everything goes through the engine, which only takes longer.
        let door = Door::open(&self.door).ok();
        let mut argv = vec![INSIDE, "session"];
        argv.extend(door.as_ref().map(|_| door::SOCKET));
        let spec = ExecSpec {
            argv: argv.into_iter().map(str::to_owned).collect(),
            env: std::collections::BTreeMap::new(),
            cwd: Some(PathBuf::from("/")),
            input: ExecInput::Streamed,
        };
        let mut exec = engine.exec(container, &spec).await?;
        let mut to_guest = exec.input.take().ok_or_else(|| EngineError::Answer {
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
        let opened = async {
            let mut from_guest = BufReader::new(exec.into_stdout());
            if let Some(door) = door {
                to_guest.write_all(&door.password()).await?;
                to_guest.flush().await?;
                if let Some(stream) = meet(door, &mut from_guest).await? {
                    let (from_guest, to_guest) = stream.into_split();
                    return Session::open(from_guest, to_guest, surroundings).await;
                }
            }
            Session::open(from_guest, to_guest, surroundings).await
        };
        Ok(opened.await)
    }
}

/// Waits for the guest at the door; `None` when it stays with the engine's stream.
async fn meet(door: Door, from_guest: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<UnixStream>> {
    let met = async {
        tokio::select! {
            entered = door.enter() => entered.map(Some),
            said = from_guest.fill_buf() => said.map(|_| None),
        }
    };
    timeout(COMING, met).await.unwrap_or(Ok(None))
}
