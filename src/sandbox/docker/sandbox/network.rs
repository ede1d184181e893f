//! The network of a sandbox: no command runs unless the network is sealed and that was verified.

use jiff::Timestamp;

use super::super::super::SandboxError;
use super::super::super::lifecycle::LifecycleState;
use super::super::super::session_slot::WarmSandbox;
use super::super::seal::{SealError, report_step};
use super::DockerSandbox;
use crate::engine::{ContainerState, EngineError};

impl DockerSandbox {
    /// Starts its container on a sealed network, and verifies the seal.
    pub(in super::super) async fn run(&self) -> Result<(), SandboxError> {
        let holder_started = match &self.seal {
            Some(seal) => seal.make_ready().await,
            None => Ok(None),
        };
        let has_old_network = match holder_started {
            Ok(None) => false,
            Ok(Some(time)) => self.started_before(time).await?,
            Err(error) => return Err(self.seal_failed(error).await),
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
    async fn started_before(&self, holder: Timestamp) -> Result<bool, SandboxError> {
        let found = self.engine().container(self.container()).await;
        let found = self.explain(found).await?;
        Ok(found.is_some_and(|found| found.state == ContainerState::Running && found.started < Some(holder)))
    }

    /// Verifies that its network is sealed. Closes the gateway if it is not.
    pub(super) async fn prove(&self) -> Result<(), SandboxError> {
        let Some(seal) = &self.seal else {
            return self.prove_runtime().await;
        };
        let mut proved = Err(match &self.runtime {
            Some(runtime) => SealError::NoGuestInRuntime(runtime.clone()),
            None => SealError::NotProbed("the guest cannot run in it".to_owned()),
        });
        // A process inside may end a session. That says nothing about the network, so it is tried twice.
        for _ in 0..2 {
            match self.session().await {
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

    /// Verifies that its runtime runs the guest, as it must where networks are sealed.
    async fn prove_runtime(&self) -> Result<(), SandboxError> {
        let Some(runtime) = &self.runtime else {
            return Ok(());
        };
        match self.session().await? {
            Some(_) => Ok(()),
            None => Err(SealError::NoGuestInRuntime(runtime.clone()).into_sandbox_error(&self.name)),
        }
    }

    /// Fails if the seal is broken. Seals the network of a sandbox that was reopened and not started yet.
    pub(super) async fn ensure_sealed(&self) -> Result<(), SandboxError> {
        let is_intact = match &self.seal {
            Some(seal) if self.lifecycle.state() == LifecycleState::Running => seal.is_intact().await,
            Some(_) | None => return Ok(()),
        };
        match is_intact {
            Ok(true) => Ok(()),
            Ok(false) => self.run().await,
            Err(error) => Err(self.seal_failed(error).await),
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
        let mut started = self.engine().start_container(self.container()).await;
        if matches!(started, Err(EngineError::Conflict { .. })) {
            // It is frozen: only its end thaws what it runs.
            let killed = self.engine().kill_container(self.container()).await;
            self.explain(killed).await?;
            started = self.engine().start_container(self.container()).await;
        }
        self.explain(started).await
    }

    async fn restart_container(&self) -> Result<(), SandboxError> {
        self.slot.close().await;
        let killed = self.engine().kill_container(self.container()).await;
        self.explain(killed).await?;
        self.start_container().await
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
