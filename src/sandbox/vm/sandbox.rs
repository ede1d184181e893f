//! One live VM and its workspace.

use std::io;
use std::path::Path;

use async_trait::async_trait;

use super::super::life::{Life, State};
use super::super::session::SessionError;
use super::super::shelf::Shelf;
use super::super::warm::Warm;
use super::super::{Activity, Sandbox, SandboxError, SandboxFiles};
use super::driver::{VmDriver, VmPlan};
use super::exec::VmExec;
use super::network::VmNetwork;
use crate::exec::{Command, Exit, OutputSink};

/// One live VM.
#[derive(Debug)]
pub(super) struct VmSandbox<D> {
    pub(super) name: String,
    pub(super) driver: D,
    pub(super) plan: VmPlan,
    pub(super) shelf: Shelf,
    pub(super) exec: VmExec,
    pub(super) warm: Warm<VmExec>,
    pub(super) life: Life,
    pub(super) network: VmNetwork,
}

impl<D: VmDriver> VmSandbox<D> {
    /// Shows by probes from inside that the network is restricted.
    pub(super) async fn verify_network(&self) -> Result<(), SandboxError> {
        match self.network.verify(&self.exec).await {
            Ok(()) => Ok(()),
            Err(error) => match self.unusable_reason().await? {
                Some(reason) => Err(reason),
                None => Err(self.plan.unsealed(error)),
            },
        }
    }

    fn gone(&self) -> SandboxError {
        SandboxError::gone(&self.name)
    }

    fn running(&self) -> Result<(), SandboxError> {
        match self.life.state() {
            State::Running => Ok(()),
            State::Stopped => Err(SandboxError::stopped(&self.name)),
            State::Closed => Err(self.gone()),
        }
    }

    /// Why the VM cannot be used any more; `None` if it runs.
    async fn unusable_reason(&self) -> Result<Option<SandboxError>, SandboxError> {
        Ok(match self.driver.list().await?.get(&self.name) {
            Some(Activity::Running) => None,
            Some(Activity::Stopped) => Some(SandboxError::lost(&self.name, "its VM was stopped")),
            Some(Activity::Removed) | None => Some(self.gone()),
        })
    }

    /// The result of a command whose warm session was lost. If the VM still runs, something inside killed both.
    async fn exit_after_lost_session(
        &self,
        command: &Command,
        lost: SessionError,
    ) -> Result<Exit, SandboxError> {
        match self.unusable_reason().await? {
            Some(reason) => Err(reason),
            None => Ok(self.warm.survive(command, &lost).await),
        }
    }

    fn processes(&self, source: io::Error) -> SandboxError {
        SandboxError::processes(&self.name, source)
    }
}

#[async_trait]
impl<D: VmDriver> Sandbox for VmSandbox<D> {
    fn id(&self) -> &str {
        &self.name
    }

    fn root(&self) -> &Path {
        &self.shelf.root
    }

    fn files(&self) -> &dyn SandboxFiles {
        &self.shelf
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.running()?;
        let Some(session) = self.warm.session().await? else {
            return self.exec_trusted(command, output).await;
        };
        match session.exec(command, output).await {
            Err(error) => match error.cause::<SessionError>() {
                Some(lost) => self.exit_after_lost_session(command, lost.clone()).await,
                None => Err(error),
            },
            exit => exit,
        }
    }

    async fn exec_trusted(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        self.running()?;
        let exit = self.exec.run(command, output).await;
        let exit = exit.map_err(|source| self.processes(source))?;
        // The host CLI fails with an exit code as well. The state of the VM shows whether the command failed or the CLI.
        if exit.success() {
            Ok(exit)
        } else {
            self.unusable_reason().await?.map_or(Ok(exit), Err)
        }
    }

    async fn verify(&self) -> Result<(), SandboxError> {
        self.running()?;
        self.verify_network().await
    }

    fn notices(&self) -> Vec<String> {
        self.warm.notices()
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        if self.life.state() != State::Running {
            return Ok(());
        }
        // The guest reports to running commands that they were ended. Errors do not matter: it is killed with the rest.
        if let Some(session) = self.warm.take().await {
            let _ = session.end_processes().await;
        }
        let ended = self
            .exec
            .end_all()
            .await
            .map_err(|source| self.processes(source))?;
        if ended.success() {
            return Ok(());
        }
        match self.unusable_reason().await? {
            Some(reason) => Err(reason),
            None => Err(self.processes(io::Error::other(ended.stderr.text()))),
        }
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Running, &self.name)?;
        match self.driver.list().await?.get(&self.name) {
            Some(Activity::Running) => Ok(()),
            _ if matches!(self.network, VmNetwork::Attached) => Err(SandboxError::unsupported(
                D::NAME,
                "start a VM that belongs to another process",
                "the network policy is not known here",
            )),
            Some(Activity::Stopped | Activity::Removed) | None => {
                self.driver.start(&self.plan).await?;
                self.verify_network().await
            }
        }
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Stopped, &self.name)?;
        self.warm.take().await;
        self.driver.stop(&self.name).await
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Closed, &self.name)?;
        self.warm.take().await;
        self.driver.remove(&self.name).await?;
        let place = self.plan.place.clone();
        let removed = tokio::task::spawn_blocking(move || place.remove()).await;
        removed
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|source| super::on_host("remove", &self.plan.place, source))
    }
}
