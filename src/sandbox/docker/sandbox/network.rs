//! A sandbox and its network: it runs on one that is sealed and shown to be, or not at all.

use jiff::Timestamp;

use super::super::super::SandboxError;
use super::super::super::life::State;
use super::super::seal::{Ready, Seal, SealError, SealStep, Standing};
use super::DockerSandbox;
use crate::engine::ContainerState;

impl DockerSandbox {
    /// Runs its container, on a network that is sealed and shown to be.
    pub(in super::super) async fn run(&self) -> Result<(), SandboxError> {
        let ready = match &self.seal {
            Some(seal) => seal.make_ready().await,
            None => Ok(Ready::Same),
        };
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => return Err(self.explain_seal(error).await),
        };
        let is_elsewhere = match ready {
            Ready::Same => false,
            Ready::Found(since) => self.started_before(since).await?,
            Ready::New => true,
        };
        if is_elsewhere {
            self.restart_container().await?;
        } else {
            self.start_container().await?;
        }
        if let Some(seal) = &self.seal {
            SealStep::SandboxStarted.done(seal.holder());
        }
        self.prove().await
    }

    /// Whether it has run since before its holder was started: then it is on the network that was.
    async fn started_before(&self, holder: Option<Timestamp>) -> Result<bool, SandboxError> {
        match self.engine().container(self.container()).await {
            Ok(Some(found)) if found.state == ContainerState::Running => Ok(found.started < holder),
            Ok(_) => Ok(false),
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// Shows that its network is sealed; otherwise it is closed altogether.
    pub(super) async fn prove(&self) -> Result<(), SandboxError> {
        let Some(seal) = &self.seal else {
            return Ok(());
        };
        let mut proved = Err(SealError::Untried("the guest cannot run in it".to_owned()));
        // A session may be lost by what runs inside: that says nothing about the network.
        for _ in 0..2 {
            match self.warm.session().await {
                Ok(Some(session)) => {
                    SealStep::SessionOpened.done(seal.holder());
                    proved = seal.prove(&session).await;
                }
                Ok(None) => {}
                Err(error) => return Err(self.explain(error).await),
            }
            if !matches!(proved, Err(SealError::Untried(_))) {
                break;
            }
            self.warm.take().await;
        }
        match proved {
            Ok(()) => Ok(()),
            Err(error) => {
                seal.let_go().await;
                Err(self.explain_seal(error).await)
            }
        }
    }

    /// Nothing runs on a network whose seal is broken. One that was not sealed yet, since it was found again, is now.
    pub(super) async fn ensure_sealed(&self) -> Result<(), SandboxError> {
        let standing = match &self.seal {
            Some(seal) if self.life.state() == State::Running => seal.standing().await,
            Some(_) | None => return Ok(()),
        };
        match standing {
            Standing::Holds => Ok(()),
            Standing::NotYet => self.run().await,
            Standing::Broken => Err(self.explain_seal(SealError::HolderEnded).await),
        }
    }

    /// What an error of the seal's means for the sandbox: its holder ended alone, or with it.
    async fn explain_seal(&self, error: SealError) -> SandboxError {
        if !matches!(error, SealError::HolderEnded | SealError::Line(_)) {
            return self.unsealed(error);
        }
        match self.engine().container(self.container()).await {
            Ok(Some(found)) if found.state == ContainerState::Running => self.unsealed(error),
            Ok(None) => self.gone(),
            Ok(Some(_)) => self.why_stopped().await,
            Err(error) => self.explain(error).await,
        }
    }

    pub(super) async fn start_container(&self) -> Result<(), SandboxError> {
        match self.engine().start_container(self.container()).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    pub(super) async fn restart_container(&self) -> Result<(), SandboxError> {
        self.warm.take().await;
        match self.engine().kill_container(self.container()).await {
            Ok(()) => self.start_container().await,
            Err(error) => Err(self.explain(error).await),
        }
    }

    pub(super) fn unsealed(&self, error: SealError) -> SandboxError {
        error.into_sandbox_error(&self.name)
    }

    /// Ends everything in it by stopping it whole.
    pub(super) async fn restart(&self) -> Result<(), SandboxError> {
        self.restart_container().await?;
        self.prove().await
    }

    pub(super) async fn let_go_of_network(&self) {
        if let Some(seal) = &self.seal {
            seal.let_go().await;
        }
    }

    /// Its own container, and that of its network's holder.
    pub(super) fn containers(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.container()).chain(self.seal.as_ref().map(Seal::holder))
    }
}
