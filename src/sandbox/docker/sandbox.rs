//! One live container and its workspace.

mod network;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::super::files::WorkspaceFiles;
use super::super::lifecycle::{Lifecycle, LifecycleState};
use super::super::sandbox_dir::SandboxDir;
use super::super::session::{SessionError, WarmSession};
use super::super::session_slot::{SessionSlot, WarmSandbox};
use super::super::{Sandbox, SandboxError, SandboxErrorKind, SandboxFiles};
use super::container::ROOT;
use super::disk::DiskWatch;
use super::engine_failed_for;
use super::exec::ContainerCommands;
use super::seal::Seal;
use crate::clock::Clock;
use crate::engine::{ContainerState, Engine, EngineError, ExecState};
use crate::exec::{Command, Exit, ExitStatus, OutputSink};

/// Kills all processes that this one may kill: all but the first. The kernel does it in one step, so that no process
/// can start another meanwhile.
const KILL_ALL: &str = "kill -9 -1";

const SIGKILL: i32 = 9;
/// The exit code of a shell whose command was killed.
const KILLED: i32 = 128 + SIGKILL;

/// How long the engine may take to report that memory ran out.
const OOM_TIMEOUT: Duration = Duration::from_secs(2);
const OOM_POLL: Duration = Duration::from_millis(20);

/// How long the engine may take to report that a container has ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const END_POLL: Duration = Duration::from_millis(20);

/// How many lines of the log of a container an error message shows.
const LOG_LINES: u32 = 10;

/// One live container and its workspace.
pub(super) struct DockerSandbox {
    pub(super) name: String,
    pub(super) dir: SandboxDir,
    /// The digest of its image; `None` if another process owns it.
    pub(super) image: Option<String>,
    pub(super) disk: DiskWatch,
    /// Its files, if its workspace is a directory of the host.
    pub(super) shared_files: Option<WorkspaceFiles>,
    pub(super) exec: ContainerCommands,
    pub(super) slot: SessionSlot,
    /// How long to wait after a command has ended for child processes that keep its streams open.
    pub(super) grace: Duration,
    pub(super) lifecycle: Lifecycle,
    /// Whether processes may run that were started in the sandbox.
    pub(super) used: AtomicBool,
    /// The OCI runtime that must run its guest. `None` is the engine's default, or there is no guest.
    pub(super) runtime: Option<String>,
    /// Set if its network is sealed, and this process owns it.
    pub(super) seal: Option<Seal>,
    pub(super) clock: Arc<dyn Clock>,
}

impl DockerSandbox {
    fn engine(&self) -> &Engine {
        &self.exec.engine
    }

    /// The id of its container. Once it is gone, another container may have its name.
    fn container(&self) -> &str {
        &self.exec.container
    }

    /// Its container and that of its holder.
    fn containers(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.container()).chain(self.seal.as_ref().map(Seal::holder))
    }

    /// Turns an error of the engine into that of the sandbox.
    pub(super) async fn explain<T>(&self, result: Result<T, EngineError>) -> Result<T, SandboxError> {
        match result {
            Ok(value) => Ok(value),
            Err(EngineError::NotFound { .. }) => Err(SandboxError::gone(&self.name)),
            Err(EngineError::Conflict { .. }) => Err(self.stop_reason().await),
            Err(error) => Err(engine_failed_for(&self.name, error)),
        }
    }

    /// Why the container does not run.
    async fn stop_reason(&self) -> SandboxError {
        if self.lifecycle.state() == LifecycleState::Stopped {
            return SandboxError::stopped(&self.name);
        }
        match self.unusable_reason().await {
            Ok(Some(reason)) => reason,
            Ok(None) => SandboxError::lost(&self.name, "its container was restarted"),
            Err(error) => error,
        }
    }

    /// The end of the container's log, for an error message.
    async fn log_tail(&self) -> String {
        let log = self.engine().container_log(self.container(), LOG_LINES).await;
        match log.unwrap_or_default().trim() {
            "" => String::new(),
            log => format!("; the end of its log: {log}"),
        }
    }

    /// Marks an exit whose command was killed because the sandbox ran out of memory. Only the engine knows that.
    async fn with_memory_status(&self, exit: Exit, started: Timestamp) -> Exit {
        if exit.success() {
            return exit;
        }
        let killed = matches!(
            exit.status,
            ExitStatus::Signal(SIGKILL) | ExitStatus::Code(KILLED)
        );
        // The exit may be reported before the lack of memory.
        let give_up = Instant::now() + if killed { OOM_TIMEOUT } else { Duration::ZERO };
        loop {
            match self
                .engine()
                .ran_out_of_memory(self.container(), started, self.clock.now())
                .await
            {
                Ok(true) if killed => {
                    return Exit {
                        status: ExitStatus::OutOfMemory,
                        ..exit
                    };
                }
                Ok(true) => {
                    let notice = "a process in the sandbox was killed because memory ran out";
                    self.slot.add_notice(notice.to_owned());
                    return exit;
                }
                Ok(false) if Instant::now() < give_up => sleep(OOM_POLL).await,
                Ok(false) | Err(_) => return exit,
            }
        }
    }

    /// Runs a command on a sealed network, and ends everything in the sandbox if it uses too much disk space.
    async fn run_limited(
        &self,
        run: impl Future<Output = Result<Exit, SandboxError>> + Send,
    ) -> Result<Exit, SandboxError> {
        self.ensure_sealed().await?;
        self.used.store(true, Ordering::Relaxed);
        let started = self.clock.now();
        let reason = tokio::select! {
            exit = run => return Ok(self.with_memory_status(exit?, started).await),
            reason = self.disk.exceeded() => reason,
        };
        self.end_processes().await?;
        let message = format!(
            "all processes in the sandbox `{}` were ended: {reason}",
            self.name
        );
        Err(SandboxError::new(SandboxErrorKind::DiskFull, message).with_hint(Some(
            "raise `sandbox.resources.disk`, free some space on the disk, or ask the agent with `ralph note` to use less; \
             `ralph resume` goes on in a new sandbox, from the last checkpoint",
        )))
    }

    /// Kills every process. Restarts the container if that is the only way.
    async fn kill_processes(&self) -> Result<(), SandboxError> {
        match self.exec.script(KILL_ALL, &[]).await {
            Ok(ExecState::Exited(_)) => Ok(()),
            // No process can be started, for example because the process limit is reached; or the agent stopped this one.
            Ok(ExecState::NotStarted | ExecState::Running) => self.restart().await,
            Err(EngineError::Conflict { .. }) if self.lifecycle.state() == LifecycleState::Stopped => Ok(()),
            // The container ended with its processes, for example because memory ran out. Its files still exist.
            Err(EngineError::Conflict { .. }) => {
                self.slot.add_notice(self.stop_reason().await.to_string());
                self.restart().await
            }
            Err(error) => self.explain(Err(error)).await,
        }
    }
}

#[async_trait]
impl WarmSandbox for DockerSandbox {
    fn slot(&self) -> &SessionSlot {
        &self.slot
    }

    async fn open_session(&self) -> Result<Result<WarmSession, SessionError>, SandboxError> {
        let opened = self.open_guest().await;
        opened.map_err(|error| engine_failed_for(&self.name, error))
    }

    async fn unusable_reason(&self) -> Result<Option<SandboxError>, SandboxError> {
        let found = self.engine().container(self.container()).await;
        let found = found.map_err(|error| engine_failed_for(&self.name, error))?;
        let Some(container) = found else {
            return Ok(Some(SandboxError::gone(&self.name)));
        };
        let reason = match container.state {
            ContainerState::Running => return Ok(None),
            _ if self.lifecycle.state() == LifecycleState::Stopped => {
                return Ok(Some(SandboxError::stopped(&self.name)));
            }
            ContainerState::OutOfMemory => "it was killed because memory ran out".to_owned(),
            ContainerState::Stopped | ContainerState::Created => {
                format!("its container was stopped{}", self.log_tail().await)
            }
            ContainerState::Paused => "its container was paused".to_owned(),
        };
        Ok(Some(SandboxError::lost(&self.name, reason)))
    }

    async fn lost_reason(&self) -> Result<Option<SandboxError>, SandboxError> {
        // All processes of a container end before the engine knows that it ended. Meanwhile none can be started in it.
        if matches!(self.exec.script(":", &[]).await, Ok(ExecState::Exited(0))) {
            return Ok(None);
        }
        let give_up = Instant::now() + END_TIMEOUT;
        loop {
            match self.unusable_reason().await? {
                None if Instant::now() < give_up => sleep(END_POLL).await,
                reason => return Ok(reason),
            }
        }
    }

    async fn exec_plain(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        match self.exec.run(command, output).await {
            Ok(exit) if exit.status == ExitStatus::Code(KILLED) => match self.lost_reason().await? {
                Some(reason) => Err(reason),
                None => Ok(exit),
            },
            Ok(exit) => Ok(exit),
            Err(error) if error.cause::<EngineError>().is_none() => Err(error),
            Err(error) => Err(self.unusable_reason().await?.unwrap_or(error)),
        }
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
    fn id(&self) -> &str {
        &self.name
    }

    fn root(&self) -> &Path {
        Path::new(ROOT)
    }

    fn image_digest(&self) -> Option<String> {
        self.image.clone()
    }

    fn files(&self) -> &dyn SandboxFiles {
        match &self.shared_files {
            Some(files) => files,
            None => self,
        }
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.run_limited(self.exec_warm(command, output)).await
    }

    async fn exec_trusted(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        self.run_limited(self.exec_plain(command, output)).await
    }

    async fn verify(&self) -> Result<(), SandboxError> {
        self.ensure_sealed().await?;
        self.prove().await
    }

    fn notices(&self) -> Vec<String> {
        self.slot.take_notices()
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        if !self.used.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.slot.end_commands().await;
        let ended = self.kill_processes().await;
        if ended.is_err() {
            self.used.store(true, Ordering::Relaxed);
        }
        ended
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Running, &self.name)?;
        self.run().await
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Stopped, &self.name)?;
        self.close_gateway().await;
        let mut stopped = Ok(());
        for container in self.containers() {
            let killed = self.engine().kill_container(container).await;
            stopped = stopped.and(self.explain(killed).await);
        }
        stopped
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Closed, &self.name)?;
        self.close_gateway().await;
        for container in self.containers() {
            let removed = self.engine().remove_container(container).await;
            self.explain(removed).await?;
        }
        self.dir.remove().await
    }
}
