//! One live sandbox at Daytona.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, interval_at};

use super::api::{Api, SANDBOX_PATIENCE};
use super::files::{FilesError, RemoteFiles};
use super::plain::Plain;
use super::terminal::ByTerminal;
use super::wire::{Phase, Remote};
use super::{DaytonaError, discard, failed};
use crate::exec::{Command, Exit, OutputSink};
use crate::sandbox::life::{Life, State};
use crate::sandbox::session::SessionError;
use crate::sandbox::warm::Warm;
use crate::sandbox::{DirEntry, END, Sandbox, SandboxError, SandboxFiles};

/// How often Daytona is told that a sandbox is in use while a command runs: it does not see that for itself.
const TOUCH: Duration = Duration::from_secs(120);

/// One live sandbox.
#[derive(Debug)]
pub(super) struct DaytonaSandbox {
    api: Api,
    remote: Remote,
    files: RemoteFiles,
    plain: Plain,
    warm: Warm<ByTerminal>,
    life: Life,
}

impl DaytonaSandbox {
    /// A sandbox that runs.
    pub(super) fn new(
        api: Api,
        remote: Remote,
        files: RemoteFiles,
        (plain, warm): (Plain, Warm<ByTerminal>),
    ) -> Self {
        Self {
            api,
            remote,
            files,
            plain,
            warm,
            life: Life::running(),
        }
    }

    fn gone(&self) -> SandboxError {
        SandboxError::gone(&self.remote.name)
    }

    fn running(&self) -> Result<(), SandboxError> {
        match self.life.state() {
            State::Running => Ok(()),
            State::Stopped => Err(SandboxError::stopped(&self.remote.name)),
            State::Closed => Err(self.gone()),
        }
    }

    /// What an error means for the sandbox: the control plane knows.
    async fn explain(&self, error: DaytonaError) -> SandboxError {
        let name = &self.remote.name;
        match self.api.sandbox(&self.remote.id).await {
            Ok(None) => self.gone(),
            Ok(Some(remote)) => match remote.state.phase() {
                Phase::Started | Phase::Moving => failed(name, error),
                Phase::Ending => self.gone(),
                Phase::Resting | Phase::Failed => {
                    SandboxError::lost(name, format!("Daytona has it in the state `{}`", remote.state.0))
                }
            },
            Err(_) => failed(name, error),
        }
    }

    async fn told<T>(&self, done: Result<T, FilesError>) -> Result<T, SandboxError> {
        match done {
            Ok(done) => Ok(done),
            Err(FilesError::Plain(error)) => Err(error),
            Err(FilesError::Daytona(error)) => Err(self.explain(error).await),
        }
    }

    /// A session ended under a command. When the sandbox is well, something inside ended it, and the command with it.
    async fn survive(&self, command: &Command, lost: SessionError) -> Result<Exit, SandboxError> {
        match self.api.sandbox(&self.remote.id).await {
            Ok(Some(remote)) if remote.state.phase() == Phase::Started => {
                Ok(self.warm.survive(command, &lost).await)
            }
            Ok(None) => Err(self.gone()),
            Ok(Some(_)) | Err(_) => Err(SandboxError::session(&self.remote.name, lost)),
        }
    }

    /// Does something that may take long, and says meanwhile that the sandbox is in use.
    async fn in_use<T>(&self, work: impl Future<Output = T>) -> T {
        let mut alarm = interval_at(Instant::now() + TOUCH, TOUCH);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = alarm.tick() => {
                    if let Err(error) = self.api.touch(&self.remote.id).await {
                        tracing::warn!(sandbox = self.remote.name, %error, "Daytona was not told that it is in use");
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Sandbox for DaytonaSandbox {
    #[expect(clippy::misnamed_getters, reason = "people know it by its name")]
    fn id(&self) -> &str {
        &self.remote.name
    }

    fn root(&self) -> &Path {
        &self.files.root
    }

    fn files(&self) -> &dyn SandboxFiles {
        self
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.running()?;
        let session = match self.warm.session().await {
            Ok(Some(session)) => session,
            Ok(None) => return self.exec_trusted(command, output).await,
            Err(error) => return Err(self.explain(error).await),
        };
        match self.in_use(session.exec(command, output)).await {
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
        match self.in_use(self.plain.run(command, &self.files, output)).await {
            Ok(exit) => Ok(exit),
            Err(error) => Err(self.explain(error).await),
        }
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
        match self.plain.toolbox.script(END, &[]).await {
            Ok(ended) if ended.exit_code == 0 => Ok(()),
            Ok(_) => Err(SandboxError::processes(
                &self.remote.name,
                std::io::Error::other("there are always more of them"),
            )),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Running, &self.remote.name)?;
        match self.api.started(&self.remote.id, SANDBOX_PATIENCE).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Stopped, &self.remote.name)?;
        self.warm.take().await;
        match self.api.stopped(&self.remote.id).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn preview(&self, port: u16) -> Result<Option<String>, SandboxError> {
        match self.api.preview(&self.remote.id, port).await {
            Ok(preview) => Ok(Some(preview.url)),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Closed, &self.remote.name)?;
        self.warm.take().await;
        let removed = discard(&self.api, &self.remote).await;
        removed.map_err(|error| failed(&self.remote.name, error))
    }
}

#[async_trait]
impl SandboxFiles for DaytonaSandbox {
    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError> {
        self.told(self.files.read(path, limit).await).await
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        self.told(self.files.write(path, bytes, mode).await).await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        self.told(self.files.append(path, bytes).await).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, SandboxError> {
        self.told(self.files.list(path).await).await
    }

    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError> {
        self.told(self.files.mkdir(path).await).await
    }

    async fn remove(&self, path: &Path) -> Result<(), SandboxError> {
        self.told(self.files.remove(path).await).await
    }

    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError> {
        self.told(self.files.upload(from, to).await).await
    }

    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError> {
        self.told(self.files.download(from, to, limit).await).await
    }
}
