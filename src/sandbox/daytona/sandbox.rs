//! One live sandbox at Daytona.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use tokio::time::{Instant, interval_at};

use super::api::{DaytonaApi, START_TIMEOUT};
use super::client::DaytonaClient;
use super::discard;
use super::error::DaytonaError;
use super::toolbox::run_script;
use super::wire::{DaytonaPhase, DaytonaPreview, DaytonaSandboxInfo};
use crate::exec::{Command, Exit, OutputSink};
use crate::sandbox::lifecycle::{Lifecycle, LifecycleState};
use crate::sandbox::session::{SessionContext, SessionError, WarmSession};
use crate::sandbox::session_slot::{SessionSlot, WarmSandbox};
use crate::sandbox::{END_PROCESSES, Sandbox, SandboxError, SandboxFiles};
use crate::text::error_chain;

/// How often activity is reported while a command runs. Daytona does not detect it by itself.
const TOUCH_INTERVAL: Duration = Duration::from_secs(120);

/// One live sandbox.
#[derive(Debug)]
pub(super) struct DaytonaSandbox {
    pub(super) api: DaytonaApi,
    pub(super) info: DaytonaSandboxInfo,
    pub(super) toolbox: DaytonaClient,
    pub(super) context: SessionContext,
    /// The directory for uploads before they are moved to their path.
    pub(super) staging: String,
    /// The path of the guest in the sandbox.
    pub(super) guest: PathBuf,
    pub(super) slot: SessionSlot,
    pub(super) lifecycle: Lifecycle,
}

impl DaytonaSandbox {
    /// Reports activity to Daytona while `work` runs.
    async fn with_activity<T>(&self, work: impl Future<Output = T>) -> T {
        let path = format!("sandbox/{}/last-activity", self.info.id);
        let mut alarm = interval_at(Instant::now() + TOUCH_INTERVAL, TOUCH_INTERVAL);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = alarm.tick() => {
                    let call = self.api.client.call(Method::POST, &path).repeatable();
                    let reported = tokio::select! {
                        done = &mut work => return done,
                        reported = call.done() => reported,
                    };
                    if let Err(error) = reported {
                        tracing::warn!(sandbox = self.id(), error = %error_chain(&error), "cannot report activity to Daytona");
                    }
                }
            }
        }
    }

    /// Turns an error of Daytona into one of the sandbox. Only the control plane knows whether the sandbox still runs.
    pub(super) async fn explain<T>(&self, result: Result<T, DaytonaError>) -> Result<T, SandboxError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(match self.unusable_reason().await {
                Ok(Some(reason)) => reason,
                Ok(None) | Err(_) => error.for_sandbox(self.id()),
            }),
        }
    }

    async fn bring_to(&self, phase: DaytonaPhase) -> Result<(), SandboxError> {
        let reached = self.api.bring_to(phase, &self.info.id, START_TIMEOUT).await;
        self.explain(reached.map(drop)).await
    }
}

#[async_trait]
impl WarmSandbox for DaytonaSandbox {
    fn slot(&self) -> &SessionSlot {
        &self.slot
    }

    async fn open_session(&self) -> Result<Result<WarmSession, SessionError>, SandboxError> {
        let opened = self.open_terminal().await;
        opened.map_err(|error| error.for_sandbox(self.id()))
    }

    async fn unusable_reason(&self) -> Result<Option<SandboxError>, SandboxError> {
        let found = self.api.sandbox(&self.info.id).await;
        let Some(info) = found.map_err(|error| error.for_sandbox(self.id()))? else {
            return Ok(Some(SandboxError::gone(self.id())));
        };
        Ok(match info.phase() {
            DaytonaPhase::Started | DaytonaPhase::Changing => None,
            DaytonaPhase::Removed => Some(SandboxError::gone(self.id())),
            DaytonaPhase::Stopped | DaytonaPhase::Failed => {
                let reason = format!("its state at Daytona is `{}`", info.state);
                Some(SandboxError::lost(self.id(), reason))
            }
        })
    }

    async fn exec_plain(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        let exit = self.exec_in_session(command, output).await;
        self.explain(exit).await
    }
}

#[async_trait]
impl Sandbox for DaytonaSandbox {
    #[expect(
        clippy::misnamed_getters,
        reason = "ralph's id of a sandbox is its name at Daytona"
    )]
    fn id(&self) -> &str {
        &self.info.name
    }

    fn root(&self) -> &Path {
        &self.context.dir
    }

    fn files(&self) -> &dyn SandboxFiles {
        self
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.lifecycle.check_running(self.id())?;
        self.with_activity(self.exec_warm(command, output)).await
    }

    async fn exec_trusted(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        self.lifecycle.check_running(self.id())?;
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
        let ended = run_script(&self.toolbox, END_PROCESSES, &[]).await;
        match self.explain(ended).await?.exit_code {
            0 => Ok(()),
            _ => Err(SandboxError::processes(
                self.id(),
                std::io::Error::other("new processes are started all the time"),
            )),
        }
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Running, self.id())?;
        self.bring_to(DaytonaPhase::Started).await
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Stopped, self.id())?;
        self.slot.close().await;
        self.bring_to(DaytonaPhase::Stopped).await
    }

    async fn preview(&self, port: u16) -> Result<Option<String>, SandboxError> {
        let path = format!("sandbox/{}/ports/{port}/preview-url", self.info.id);
        let preview = self.api.client.get(&path).json::<DaytonaPreview>().await;
        Ok(Some(self.explain(preview).await?.url))
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Closed, self.id())?;
        self.slot.close().await;
        let removed = discard(&self.api, &self.info).await;
        removed.map_err(|error| error.for_sandbox(self.id()))
    }
}
