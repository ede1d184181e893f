//! One live VM and its workspace.

use std::io;
use std::path::Path;

use async_trait::async_trait;

use super::super::files::WorkspaceFiles;
use super::super::lifecycle::{Lifecycle, LifecycleState};
use super::super::session::{SessionError, WarmSession};
use super::super::session_slot::{SessionSlot, WarmSandbox};
use super::super::{Sandbox, SandboxActivity, SandboxError, SandboxFiles};
use super::driver::{VmDriver, VmPlan};
use super::exec::VmExec;
use super::network::VmNetwork;
use crate::exec::{Command, Exit, OutputSink};

/// One live VM.
pub(super) struct VmSandbox<D> {
    pub(super) name: String,
    pub(super) driver: D,
    pub(super) plan: VmPlan,
    pub(super) files: WorkspaceFiles,
    pub(super) exec: VmExec,
    pub(super) slot: SessionSlot,
    pub(super) lifecycle: Lifecycle,
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

    fn processes(&self, error: io::Error) -> SandboxError {
        SandboxError::processes(&self.name, error)
    }
}

#[async_trait]
impl<D: VmDriver> WarmSandbox for VmSandbox<D> {
    fn slot(&self) -> &SessionSlot {
        &self.slot
    }

    async fn open_session(&self) -> Result<Result<WarmSession, SessionError>, SandboxError> {
        Ok(self.exec.open_session().await)
    }

    async fn unusable_reason(&self) -> Result<Option<SandboxError>, SandboxError> {
        Ok(match self.driver.list().await?.get(&self.name) {
            Some(SandboxActivity::Running) => None,
            Some(SandboxActivity::Stopped) => Some(SandboxError::lost(&self.name, "its VM was stopped")),
            Some(SandboxActivity::Removed) | None => Some(SandboxError::gone(&self.name)),
        })
    }

    async fn exec_plain(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        let exit = self.exec.run(command, output).await;
        let exit = exit.map_err(|error| self.processes(error))?;
        // The host CLI fails with an exit code as well. The state of the VM shows whether the command failed or the CLI.
        if exit.success() {
            Ok(exit)
        } else {
            self.unusable_reason().await?.map_or(Ok(exit), Err)
        }
    }
}

#[async_trait]
impl<D: VmDriver> Sandbox for VmSandbox<D> {
    fn id(&self) -> &str {
        &self.name
    }

    fn root(&self) -> &Path {
        self.files.root()
    }

    fn files(&self) -> &dyn SandboxFiles {
        &self.files
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.lifecycle.check_running(&self.name)?;
        self.exec_warm(command, output).await
    }

    async fn exec_trusted(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        self.lifecycle.check_running(&self.name)?;
        self.exec_plain(command, output).await
    }

    async fn verify(&self) -> Result<(), SandboxError> {
        self.lifecycle.check_running(&self.name)?;
        self.verify_network().await
    }

    fn notices(&self) -> Vec<String> {
        self.slot.take_notices()
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        if self.lifecycle.state() != LifecycleState::Running {
            return Ok(());
        }
        self.slot.end_commands().await;
        let ended = self.exec.end_all().await.map_err(|error| self.processes(error))?;
        if ended.success() {
            return Ok(());
        }
        if let Some(reason) = self.unusable_reason().await? {
            return Err(reason);
        }
        let reason = format!("they do not end ({}) {}", ended.status, ended.stderr.text());
        Err(self.processes(io::Error::other(reason.trim_end())))
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Running, &self.name)?;
        match self.driver.list().await?.get(&self.name) {
            Some(SandboxActivity::Running) => Ok(()),
            _ if matches!(self.network, VmNetwork::Attached) => Err(SandboxError::unsupported(
                D::NAME,
                "start a VM that belongs to another process",
                "the network policy is not known here",
            )),
            Some(SandboxActivity::Stopped | SandboxActivity::Removed) | None => {
                self.driver.start(&self.plan).await?;
                self.verify_network().await
            }
        }
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Stopped, &self.name)?;
        self.slot.close().await;
        self.driver.stop(&self.name).await
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Closed, &self.name)?;
        self.slot.close().await;
        self.driver.remove(&self.name).await?;
        self.plan.dir.remove().await
    }
}
