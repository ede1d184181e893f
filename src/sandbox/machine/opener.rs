//! Opens sessions with the guest in a machine, over one command of its program that stays open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;

use super::super::SandboxError;
use super::super::session::{Session, SessionError, Surroundings};
use super::super::warm::Opener;
use crate::exec::{Command, Host};

/// Opens sessions in one machine.
#[derive(Debug)]
pub(super) struct ByProgram {
    pub(super) host: Host,
    /// Runs another command in the machine.
    pub(super) exec: Command,
    /// The guest's file inside.
    pub(super) guest: PathBuf,
    /// What to call the sandbox.
    pub(super) sandbox: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) root: PathBuf,
    pub(super) grace: Duration,
}

#[async_trait]
impl Opener for ByProgram {
    type Error = SandboxError;

    async fn open(&self) -> Result<Result<Session, SessionError>, SandboxError> {
        let command = self
            .exec
            .clone()
            .args([self.guest.to_string_lossy(), "session".into()]);
        let (from_guest, to_guest) = match self.host.open_piped(&command) {
            Ok(streams) => streams,
            Err(error) => return Ok(Err(error.into())),
        };
        let surroundings = Surroundings {
            sandbox: self.sandbox.clone(),
            env: self.env.clone(),
            dir: self.root.clone(),
            grace: self.grace,
        };
        Ok(Session::open(from_guest, to_guest, surroundings).await)
    }
}
