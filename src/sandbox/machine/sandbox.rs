//! One live machine and its workspace.

use std::io;
use std::path::Path;

use async_trait::async_trait;

use super::super::life::{Life, State};
use super::super::session::SessionError;
use super::super::shelf::Shelf;
use super::super::warm::Warm;
use super::super::{Activity, Sandbox, SandboxError, SandboxFiles};
use super::border::Border;
use super::driver::{Driver, Plan};
use super::opener::ByProgram;
use super::plain::Plain;
use crate::exec::{Command, Exit, OutputSink};

/// One live machine.
#[derive(Debug)]
pub(super) struct MachineSandbox<D> {
    pub(super) name: String,
    pub(super) driver: D,
    pub(super) plan: Plan,
    pub(super) shelf: Shelf,
    pub(super) plain: Plain,
    pub(super) warm: Warm<ByProgram>,
    pub(super) life: Life,
    pub(super) border: Border,
}

impl<D: Driver> MachineSandbox<D> {
    /// Shows from inside that it is kept from the network as it should be.
    pub(super) async fn prove(&self) -> Result<(), SandboxError> {
        match self.border.prove(&self.plain).await {
            Ok(()) => Ok(()),
            Err(error) => match self.misfortune().await? {
                Some(misfortune) => Err(misfortune),
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

    /// What became of the machine, where that is nothing good.
    async fn misfortune(&self) -> Result<Option<SandboxError>, SandboxError> {
        Ok(match self.driver.all().await?.get(&self.name) {
            Some(Activity::Running) => None,
            Some(Activity::Stopped) => Some(SandboxError::lost(&self.name, "its VM was stopped")),
            Some(Activity::Removed) | None => Some(self.gone()),
        })
    }

    /// A session ended under a command. When the machine is well, something inside ended it, and the command with it.
    async fn survive(&self, command: &Command, lost: SessionError) -> Result<Exit, SandboxError> {
        match self.misfortune().await? {
            Some(misfortune) => Err(misfortune),
            None => Ok(self.warm.survive(command, &lost).await),
        }
    }

    fn processes(&self, source: io::Error) -> SandboxError {
        SandboxError::processes(&self.name, source)
    }
}

#[async_trait]
impl<D: Driver> Sandbox for MachineSandbox<D> {
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
                Some(lost) => self.survive(command, lost.clone()).await,
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
        let exit = self.plain.run(command, output).await;
        let exit = exit.map_err(|source| self.processes(source))?;
        // The program's own failure has a code like any other; the state of the machine tells them apart.
        if exit.success() {
            Ok(exit)
        } else {
            self.misfortune().await?.map_or(Ok(exit), Err)
        }
    }

    async fn verify(&self) -> Result<(), SandboxError> {
        self.running()?;
        self.prove().await
    }

    fn notices(&self) -> Vec<String> {
        self.warm.notices()
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        if self.life.state() != State::Running {
            return Ok(());
        }
        // The guest tells what runs that it was ended. Whether it can is no matter: it is killed with the rest.
        if let Some(session) = self.warm.take().await {
            let _ = session.end_processes().await;
        }
        let ended = self
            .plain
            .end_all()
            .await
            .map_err(|source| self.processes(source))?;
        if ended.success() {
            return Ok(());
        }
        match self.misfortune().await? {
            Some(misfortune) => Err(misfortune),
            None => Err(self.processes(io::Error::other(ended.stderr.text()))),
        }
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Running, &self.name)?;
        match self.driver.all().await?.get(&self.name) {
            Some(Activity::Running) => Ok(()),
            _ if matches!(self.border, Border::Theirs) => Err(SandboxError::unsupported(
                D::NAME,
                "start a machine that it only looks into",
                "what it may reach is known to whoever has it",
            )),
            Some(Activity::Stopped | Activity::Removed) | None => {
                self.driver.start(&self.plan).await?;
                self.prove().await
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
