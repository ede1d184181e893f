//! Opens sessions with the guest in a container, over one exec that stays open.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::super::session::{Session, SessionError, Surroundings};
use super::super::warm::Opener;
use super::door::{self, Door};
use super::plain::Plain;
use super::plan::{GUEST, ROOT};
use crate::engine::{EngineError, ExecSpec};

/// Where an engine looks for programs when an image does not say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long a guest may take to come to the door.
const COMING: Duration = Duration::from_secs(20);

/// Opens sessions in one container.
#[derive(Debug)]
pub(super) struct ByExec {
    pub(super) plain: Plain,
    /// The directory of its door on the host.
    pub(super) door: PathBuf,
    pub(super) grace: Duration,
}

#[async_trait]
impl Opener for ByExec {
    type Error = EngineError;

    async fn open(&self) -> Result<Result<Session, SessionError>, EngineError> {
        let Plain {
            engine, container, ..
        } = &self.plain;
        let found = engine.container(container).await?;
        let found = found.ok_or_else(|| EngineError::NotFound {
            subject: container.clone(),
        })?;
        // Without a door everything goes through the engine, which only takes longer.
        let door = Door::open(&self.door).ok();
        let mut argv = vec![GUEST, "session"];
        argv.extend(door.as_ref().map(|_| door::SOCKET));
        let spec = ExecSpec {
            argv: argv.into_iter().map(str::to_owned).collect(),
            env: BTreeMap::new(),
            cwd: Some(PathBuf::from("/")),
            stdin: true,
        };
        let mut exec = engine.exec(container, &spec).await?;
        let mut to_guest = exec.stdin.take().ok_or_else(|| EngineError::InvalidResponse {
            subject: container.clone(),
            reason: "it gave no way to write to the guest".to_owned(),
        })?;
        let mut env = found.env;
        env.extend(self.plain.variables());
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
