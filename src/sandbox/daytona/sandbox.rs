//! One live sandbox at Daytona.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, interval_at};

use super::api::{DaytonaApi, START_TIMEOUT};
use super::files::{FilesError, RemoteFiles};
use super::session_exec::ToolboxSessionExec;
use super::terminal::TerminalOpener;
use super::wire::{DaytonaPhase, DaytonaSandboxInfo};
use super::{DaytonaError, discard, failed};
use crate::exec::{Command, Exit, OutputSink};
use crate::sandbox::life::{Life, State};
use crate::sandbox::session::SessionError;
use crate::sandbox::warm::Warm;
use crate::sandbox::{DirEntry, END, Sandbox, SandboxError, SandboxFiles};

/// How often activity is reported while a command runs. Daytona does not detect it by itself.
const TOUCH_INTERVAL: Duration = Duration::from_secs(120);

/// One live sandbox.
#[derive(Debug)]
pub(super) struct DaytonaSandbox {
    pub(super) api: DaytonaApi,
    pub(super) info: DaytonaSandboxInfo,
    pub(super) files: RemoteFiles,
    pub(super) exec: ToolboxSessionExec,
    pub(super) warm: Warm<TerminalOpener>,
    pub(super) life: Life,
}

impl DaytonaSandbox {
    fn gone(&self) -> SandboxError {
        SandboxError::gone(&self.info.name)
    }

    fn running(&self) -> Result<(), SandboxError> {
        match self.life.state() {
            State::Running => Ok(()),
            State::Stopped => Err(SandboxError::stopped(&self.info.name)),
            State::Closed => Err(self.gone()),
        }
    }

    /// Asks the control plane what an error means for the sandbox.
    async fn explain(&self, error: DaytonaError) -> SandboxError {
        let name = &self.info.name;
        match self.api.sandbox(&self.info.id).await {
            Ok(None) => self.gone(),
            Ok(Some(info)) => match info.state.phase() {
                DaytonaPhase::Started | DaytonaPhase::Changing => failed(name, error),
                DaytonaPhase::Removed => self.gone(),
                DaytonaPhase::Stopped | DaytonaPhase::Failed => {
                    SandboxError::lost(name, format!("its state at Daytona is `{}`", info.state.0))
                }
            },
            Err(_) => failed(name, error),
        }
    }

    async fn explain_files<T>(&self, done: Result<T, FilesError>) -> Result<T, SandboxError> {
        match done {
            Ok(done) => Ok(done),
            Err(FilesError::Operation(error)) => Err(error),
            Err(FilesError::Daytona(error)) => Err(self.explain(error).await),
        }
    }

    /// The result of a command whose warm session was lost. If the sandbox still runs, something inside killed both.
    async fn exit_after_lost_session(
        &self,
        command: &Command,
        lost: SessionError,
    ) -> Result<Exit, SandboxError> {
        match self.api.sandbox(&self.info.id).await {
            Ok(Some(info)) if info.state.phase() == DaytonaPhase::Started => {
                Ok(self.warm.survive(command, &lost).await)
            }
            Ok(None) => Err(self.gone()),
            Ok(Some(_)) | Err(_) => Err(SandboxError::session(&self.info.name, lost)),
        }
    }

    /// Reports activity to Daytona while `work` runs.
    async fn with_activity<T>(&self, work: impl Future<Output = T>) -> T {
        let mut alarm = interval_at(Instant::now() + TOUCH_INTERVAL, TOUCH_INTERVAL);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = alarm.tick() => {
                    if let Err(error) = self.api.touch(&self.info.id).await {
                        tracing::warn!(sandbox = self.info.name, %error, "cannot report activity to Daytona");
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Sandbox for DaytonaSandbox {
    #[expect(clippy::misnamed_getters, reason = "the user knows it by its name")]
    fn id(&self) -> &str {
        &self.info.name
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
        match self.with_activity(session.exec(command, output)).await {
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
        match self
            .with_activity(self.exec.run(command, &self.files, output))
            .await
        {
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
        // The guest reports to running commands that they were ended. Errors do not matter: it is killed with the rest.
        if let Some(session) = self.warm.take().await {
            let _ = session.end_processes().await;
        }
        match self.exec.toolbox.script(END, &[]).await {
            Ok(ended) if ended.exit_code == 0 => Ok(()),
            Ok(_) => Err(SandboxError::processes(
                &self.info.name,
                std::io::Error::other("new processes are started all the time"),
            )),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Running, &self.info.name)?;
        match self.api.start(&self.info.id, START_TIMEOUT).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Stopped, &self.info.name)?;
        self.warm.take().await;
        match self.api.stop(&self.info.id).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn preview(&self, port: u16) -> Result<Option<String>, SandboxError> {
        match self.api.preview(&self.info.id, port).await {
            Ok(preview) => Ok(Some(preview.url)),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Closed, &self.info.name)?;
        self.warm.take().await;
        let removed = discard(&self.api, &self.info).await;
        removed.map_err(|error| failed(&self.info.name, error))
    }
}

#[async_trait]
impl SandboxFiles for DaytonaSandbox {
    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError> {
        self.explain_files(self.files.read(path, limit).await).await
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        self.explain_files(self.files.write(path, bytes, mode).await)
            .await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        self.explain_files(self.files.append(path, bytes).await).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirEntry>, SandboxError> {
        self.explain_files(self.files.list(path).await).await
    }

    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError> {
        self.explain_files(self.files.mkdir(path).await).await
    }

    async fn remove(&self, path: &Path) -> Result<(), SandboxError> {
        self.explain_files(self.files.remove(path).await).await
    }

    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError> {
        self.explain_files(self.files.upload(from, to).await).await
    }

    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError> {
        self.explain_files(self.files.download(from, to, limit).await)
            .await
    }
}
