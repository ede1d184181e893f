//! Opens sessions with the guest in a container, over one exec that stays open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;

use super::super::session::{Session, SessionError, Surroundings};
use super::super::warm::Opener;
use super::plain::Plain;
use super::plan::{GUEST, ROOT};
use crate::engine::{EngineError, ExecInput, ExecSpec};

/// Where an engine looks for programs when an image does not say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Opens sessions in one container.
#[derive(Debug)]
pub(super) struct ByExec {
    pub(super) plain: Plain,
    pub(super) grace: Duration,
}

#[async_trait]
impl Opener for ByExec {
    type Error = EngineError;

    async fn open(&self) -> Result<Result<Session, SessionError>, EngineError> {
        let Plain { engine, container } = &self.plain;
        let found = engine.container(container).await?;
        let found = found.ok_or_else(|| EngineError::NotFound {
            subject: container.clone(),
        })?;
        let spec = ExecSpec {
            argv: [GUEST, "session"].map(str::to_owned).to_vec(),
            env: BTreeMap::new(),
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
