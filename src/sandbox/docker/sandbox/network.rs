//! The network of a sandbox: no command runs unless the network is sealed and that was verified.

use jiff::Timestamp;

use super::super::super::SandboxError;
use super::super::super::lifecycle::LifecycleState;
use super::super::super::session_slot::WarmSandbox;
use super::super::seal::{HolderNetwork, SealError, SealState, report_step};
use super::DockerSandbox;
use crate::engine::ContainerState;

impl DockerSandbox {
    /// Starts its container on a sealed network, and verifies the seal.
    pub(in super::super) async fn run(&self) -> Result<(), SandboxError> {
        let network = match &self.seal {
            Some(seal) => seal.make_ready().await,
            None => Ok(HolderNetwork::Unchanged),
        };
        let network = match network {
            Ok(network) => network,
            Err(error) => return Err(self.seal_failed(error).await),
        };
        let has_old_network = match network {
            HolderNetwork::Unchanged => false,
            HolderNetwork::RunningSince(since) => self.started_before(since).await?,
            HolderNetwork::New => true,
        };
        if has_old_network {
            self.restart_container().await?;
        } else {
            self.start_container().await?;
        }
        if let Some(seal) = &self.seal {
            report_step("sandbox-started", seal.holder());
        }
        self.prove().await
    }

    /// Whether its container runs since before its holder was started, and so is not on the network of the holder.
    async fn started_before(&self, holder: Option<Timestamp>) -> Result<bool, SandboxError> {
        match self.engine().container(self.container()).await {
            Ok(Some(found)) if found.state == ContainerState::Running => Ok(found.started < holder),
            Ok(_) => Ok(false),
            Err(error) => Err(self.engine_failed(error).await),
        }
    }

    /// Verifies that its network is sealed. Closes the gateway if it is not.
    pub(super) async fn prove(&self) -> Result<(), SandboxError> {
        let Some(seal) = &self.seal else {
            return Ok(());
        };
        let mut proved = Err(SealError::NotProbed("the guest cannot run in it".to_owned()));
        // A process inside may end a session. That says nothing about the network, so it is tried twice.
        for _ in 0..2 {
            match self.slot.session().await {
                Ok(Some(session)) => {
                    report_step("session-opened", seal.holder());
                    proved = seal.prove(&session).await;
                }
                Ok(None) => {}
                Err(error) => return Err(self.unusable_reason().await?.unwrap_or(error)),
            }
            if !matches!(proved, Err(SealError::NotProbed(_))) {
                break;
            }
            self.slot.close().await;
        }
        match proved {
            Ok(()) => Ok(()),
            Err(error) => {
                seal.close_gateway().await;
                Err(self.seal_failed(error).await)
            }
        }
    }

    /// Fails if the seal is broken. Seals the network of a sandbox that was reopened and not started yet.
    pub(super) async fn ensure_sealed(&self) -> Result<(), SandboxError> {
        let state = match &self.seal {
            Some(seal) if self.lifecycle.state() == LifecycleState::Running => seal.state().await,
            Some(_) | None => return Ok(()),
        };
        match state {
            SealState::Intact => Ok(()),
            SealState::NotSealed => self.run().await,
            SealState::Broken => Err(self.seal_failed(SealError::HolderEnded).await),
        }
    }

    /// The error of the sandbox for an error of its seal. A holder may have ended alone, or together with the sandbox.
    async fn seal_failed(&self, error: SealError) -> SandboxError {
        let reason = match error {
            SealError::HolderEnded | SealError::Connection(_) => self.unusable_reason().await,
            _ => Ok(None),
        };
        match reason {
            Ok(None) => error.into_sandbox_error(&self.name),
            Ok(Some(reason)) | Err(reason) => reason,
        }
    }

    async fn start_container(&self) -> Result<(), SandboxError> {
        match self.engine().start_container(self.container()).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.engine_failed(error).await),
        }
    }

    async fn restart_container(&self) -> Result<(), SandboxError> {
        self.slot.close().await;
        match self.engine().kill_container(self.container()).await {
            Ok(()) => self.start_container().await,
            Err(error) => Err(self.engine_failed(error).await),
        }
    }

    /// Ends all processes by restarting the container.
    pub(super) async fn restart(&self) -> Result<(), SandboxError> {
        self.restart_container().await?;
        self.prove().await
    }

    pub(super) async fn close_gateway(&self) {
        if let Some(seal) = &self.seal {
            seal.close_gateway().await;
        }
    }
}
