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
use crate::sandbox::lifecycle::{Lifecycle, LifecycleState};
use crate::sandbox::session_slot::{SessionSlot, WarmSandbox};
use crate::sandbox::{DirEntry, END_PROCESSES, Sandbox, SandboxError, SandboxFiles};

/// How often activity is reported while a command runs. Daytona does not detect it by itself.
const TOUCH_INTERVAL: Duration = Duration::from_secs(120);

/// One live sandbox.
#[derive(Debug)]
pub(super) struct DaytonaSandbox {
    pub(super) api: DaytonaApi,
    pub(super) info: DaytonaSandboxInfo,
    pub(super) files: RemoteFiles,
    pub(super) exec: ToolboxSessionExec,
    pub(super) slot: SessionSlot<TerminalOpener>,
    pub(super) lifecycle: Lifecycle,
}

impl DaytonaSandbox {
    /// The error of the sandbox for an error of Daytona. Only the control plane knows whether the sandbox still runs.
    async fn explain(&self, error: DaytonaError) -> SandboxError {
        match self.unusable_reason().await {
            Ok(Some(reason)) => reason,
            Ok(None) | Err(_) => failed(&self.info.name, error),
        }
    }

    async fn explain_files<T>(&self, done: Result<T, FilesError>) -> Result<T, SandboxError> {
        match done {
            Ok(done) => Ok(done),
            Err(FilesError::Operation(error)) => Err(error),
            Err(FilesError::Daytona(error)) => Err(self.explain(error).await),
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
impl WarmSandbox for DaytonaSandbox {
    type Opener = TerminalOpener;

    fn slot(&self) -> &SessionSlot<TerminalOpener> {
        &self.slot
    }

    async fn unusable_reason(&self) -> Result<Option<SandboxError>, SandboxError> {
        let name = &self.info.name;
        let found = self.api.sandbox(&self.info.id).await;
        let Some(info) = found.map_err(|error| failed(name, error))? else {
            return Ok(Some(SandboxError::gone(name)));
        };
        Ok(match info.state.phase() {
            DaytonaPhase::Started | DaytonaPhase::Changing => None,
            DaytonaPhase::Removed => Some(SandboxError::gone(name)),
            DaytonaPhase::Stopped | DaytonaPhase::Failed => {
                let reason = format!("its state at Daytona is `{}`", info.state.0);
                Some(SandboxError::lost(name, reason))
            }
        })
    }

    async fn exec_plain(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        match self.exec.run(command, &self.files, output).await {
            Ok(exit) => Ok(exit),
            Err(error) => Err(self.explain(error).await),
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
        self.lifecycle.check_running(&self.info.name)?;
        self.with_activity(self.exec_warm(command, output)).await
    }

    async fn exec_trusted(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        self.lifecycle.check_running(&self.info.name)?;
        self.with_activity(self.exec_plain(command, output)).await
    }

    fn notices(&self) -> Vec<String> {
        self.slot.take_notices()
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        if self.lifecycle.state() != LifecycleState::Running {
            return Ok(());
        }
        self.slot.end_commands().await;
        match self.exec.toolbox.script(END_PROCESSES, &[]).await {
            Ok(ended) if ended.exit_code == 0 => Ok(()),
            Ok(_) => Err(SandboxError::processes(
                &self.info.name,
                std::io::Error::other("new processes are started all the time"),
            )),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Running, &self.info.name)?;
        match self.api.start(&self.info.id, START_TIMEOUT).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Stopped, &self.info.name)?;
        self.slot.close().await;
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
        self.lifecycle.enter(LifecycleState::Closed, &self.info.name)?;
        self.slot.close().await;
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
