//! One live sandbox at Daytona.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, interval_at};

use super::api::START_TIMEOUT;
use super::files::RemoteFiles;
use super::handle::DaytonaHandle;
use super::session_exec::ToolboxSessionExec;
use super::terminal::TerminalOpener;
use super::{discard, failed};
use crate::exec::{Command, Exit, OutputSink};
use crate::sandbox::lifecycle::{Lifecycle, LifecycleState};
use crate::sandbox::session_slot::{SessionSlot, WarmSandbox};
use crate::sandbox::{END_PROCESSES, Sandbox, SandboxError, SandboxFiles};

/// How often activity is reported while a command runs. Daytona does not detect it by itself.
const TOUCH_INTERVAL: Duration = Duration::from_secs(120);

/// One live sandbox.
#[derive(Debug)]
pub(super) struct DaytonaSandbox {
    pub(super) handle: DaytonaHandle,
    pub(super) files: RemoteFiles,
    pub(super) exec: ToolboxSessionExec,
    pub(super) slot: SessionSlot<TerminalOpener>,
    pub(super) lifecycle: Lifecycle,
}

impl DaytonaSandbox {
    fn name(&self) -> &str {
        &self.handle.info.name
    }

    /// Reports activity to Daytona while `work` runs.
    async fn with_activity<T>(&self, work: impl Future<Output = T>) -> T {
        let mut alarm = interval_at(Instant::now() + TOUCH_INTERVAL, TOUCH_INTERVAL);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = alarm.tick() => {
                    if let Err(error) = self.handle.api.touch(&self.handle.info.id).await {
                        tracing::warn!(sandbox = self.name(), %error, "cannot report activity to Daytona");
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
        self.handle.unusable_reason().await
    }

    async fn exec_plain(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        let exit = self.exec.run(command, &self.files, output).await;
        self.handle.explain(exit).await
    }
}

#[async_trait]
impl Sandbox for DaytonaSandbox {
    fn id(&self) -> &str {
        self.name()
    }

    fn root(&self) -> &Path {
        &self.files.root
    }

    fn files(&self) -> &dyn SandboxFiles {
        &self.files
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.lifecycle.check_running(self.name())?;
        self.with_activity(self.exec_warm(command, output)).await
    }

    async fn exec_trusted(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        self.lifecycle.check_running(self.name())?;
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
        let ended = self.exec.toolbox.script(END_PROCESSES, &[]).await;
        match self.handle.explain(ended).await?.exit_code {
            0 => Ok(()),
            _ => Err(SandboxError::processes(
                self.name(),
                std::io::Error::other("new processes are started all the time"),
            )),
        }
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Running, self.name())?;
        let started = self.handle.api.start(&self.handle.info.id, START_TIMEOUT).await;
        self.handle.explain(started.map(drop)).await
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Stopped, self.name())?;
        self.slot.close().await;
        let stopped = self.handle.api.stop(&self.handle.info.id).await;
        self.handle.explain(stopped).await
    }

    async fn preview(&self, port: u16) -> Result<Option<String>, SandboxError> {
        let preview = self.handle.api.preview(&self.handle.info.id, port).await;
        Ok(Some(self.handle.explain(preview).await?.url))
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Closed, self.name())?;
        self.slot.close().await;
        let removed = discard(&self.handle.api, &self.handle.info).await;
        removed.map_err(|error| failed(self.name(), error))
    }
}
