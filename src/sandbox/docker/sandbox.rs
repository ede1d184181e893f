//! One live container and its workspace.

mod network;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::super::life::{Life, State};
use super::super::place::Place;
use super::super::session::SessionError;
use super::super::shelf::Shelf;
use super::super::warm::Warm;
use super::super::{Sandbox, SandboxError, SandboxErrorKind, SandboxFiles};
use super::disk::Disk;
use super::opener::ByExec;
use super::plain::{Plain, PlainError};
use super::seal::Seal;
use super::{failed, on_host};
use crate::engine::{ContainerState, Engine, EngineError, ExecState};
use crate::exec::{Command, Exit, ExitStatus, OutputSink};

/// Kills every process of the agent's at once: all that this one may kill, which is all but the first. The kernel
/// does it in one go, so that nothing can be started meanwhile.
const KILL_ALL: &str = "kill -9 -1";

/// The signal that ends what nothing else does, and the code by which a shell tells that it did.
const SIGKILL: i32 = 9;
const KILLED: i32 = 128 + SIGKILL;

/// How long the engine may take to tell that memory ran out, and how often it is asked.
const OOM_PATIENCE: Duration = Duration::from_secs(2);
const OOM_PAUSE: Duration = Duration::from_millis(20);

/// How much of a container's log a message holds.
const LOG_LINES: u32 = 10;

/// One live container and its workspace.
#[derive(Debug)]
pub(super) struct DockerSandbox {
    name: String,
    place: Place,
    disk: Disk,
    shelf: Shelf,
    plain: Plain,
    warm: Warm<ByExec>,
    life: Life,
    /// Whether something may run that was started in here.
    used: AtomicBool,
    /// Where its network is sealed, and in our hands.
    seal: Option<Seal>,
}

impl DockerSandbox {
    /// The sandbox at this place, whose container runs.
    pub(super) fn new(plain: Plain, warm: Warm<ByExec>, place: Place, shelf: Shelf) -> Self {
        Self {
            name: place.name(),
            disk: Disk::new(place.workspace(), plain.clone()),
            shelf,
            plain,
            warm,
            place,
            life: Life::running(),
            used: AtomicBool::new(true),
            seal: None,
        }
    }

    /// The same, with the seal of its network, where it has one.
    pub(super) fn sealed(mut self, seal: Option<Seal>) -> Self {
        self.seal = seal;
        self
    }

    /// The same, when nothing runs in it yet.
    pub(super) fn fresh(mut self) -> Self {
        self.used = AtomicBool::new(false);
        self
    }

    /// The same, when its engine keeps containers in this directory.
    pub(super) fn kept_in(mut self, engine: Option<PathBuf>) -> Self {
        self.disk = self.disk.kept_in(engine);
        self
    }

    /// The same, when it may take only so many bytes of the disk.
    pub(super) fn limited_to(mut self, disk: Option<u64>) -> Self {
        self.disk = self.disk.limited_to(disk);
        self
    }

    fn engine(&self) -> &Engine {
        &self.plain.engine
    }

    /// Its container, by id: another may have its name once it is gone.
    fn container(&self) -> &str {
        &self.plain.container
    }

    fn gone(&self) -> SandboxError {
        SandboxError::gone(&self.name)
    }

    fn lost(&self, reason: &str) -> SandboxError {
        SandboxError::lost(&self.name, reason)
    }

    /// What an error of the engine's means for the sandbox.
    async fn explain(&self, error: EngineError) -> SandboxError {
        match error {
            EngineError::NotFound { .. } => self.gone(),
            EngineError::Conflict { .. } => self.why_stopped().await,
            error => self.failed(error),
        }
    }

    fn failed(&self, source: EngineError) -> SandboxError {
        failed(&self.name, source)
    }

    async fn why_stopped(&self) -> SandboxError {
        if self.life.state() == State::Stopped {
            return SandboxError::stopped(&self.name);
        }
        match self.engine().container(self.container()).await {
            Ok(None) => self.gone(),
            Ok(Some(container)) => match container.state {
                ContainerState::OutOfMemory => self.lost("it was killed for its use of memory"),
                ContainerState::Stopped | ContainerState::Created => {
                    self.lost(&format!("its container was stopped{}", self.last_words().await))
                }
                ContainerState::Paused => self.lost("its container was paused"),
                ContainerState::Running => self.lost("its container was started anew"),
            },
            Err(error) => self.failed(error),
        }
    }

    /// What the engine kept of the container's output, for a message.
    async fn last_words(&self) -> String {
        let log = self.engine().container_log(self.container(), LOG_LINES).await;
        match log.unwrap_or_default().trim() {
            "" => String::new(),
            log => format!("; the end of its log: {log}"),
        }
    }

    /// A session ended under a command. When the container is well, something inside ended it, and the command with it.
    async fn survive(&self, command: &Command, lost: SessionError) -> Result<Exit, SandboxError> {
        match self.engine().container(self.container()).await {
            Ok(Some(found)) if found.state == ContainerState::Running => {
                Ok(self.warm.survive(command, &lost).await)
            }
            Ok(_) => Err(self.why_stopped().await),
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// Names the cause where a command was killed for the sandbox's use of memory: the engine knows.
    async fn with_cause(&self, exit: Exit, started: Timestamp) -> Exit {
        let killed = matches!(
            exit.status,
            ExitStatus::Signal(SIGKILL) | ExitStatus::Code(KILLED)
        );
        if exit.success() {
            return exit;
        }
        // What killed the command may be told before what it was killed for.
        let patience = if killed { OOM_PATIENCE } else { Duration::ZERO };
        let give_up = Instant::now() + patience;
        loop {
            match self.engine().ran_out_of_memory(self.container(), started).await {
                Ok(true) if killed => {
                    return Exit {
                        status: ExitStatus::OutOfMemory,
                        ..exit
                    };
                }
                Ok(true) => {
                    self.warm
                        .tell("a process in the sandbox was killed for its use of memory".to_owned());
                    return exit;
                }
                Ok(false) if Instant::now() < give_up => sleep(OOM_PAUSE).await,
                Ok(false) | Err(_) => return exit,
            }
        }
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
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
        self.within_disk(self.run_warm(command, output)).await
    }

    async fn exec_trusted(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        self.within_disk(self.run_plain(command, output)).await
    }

    async fn verify(&self) -> Result<(), SandboxError> {
        self.ensure_sealed().await?;
        self.prove().await
    }

    fn notices(&self) -> Vec<String> {
        self.warm.notices()
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        if !self.used.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // The guest tells what runs that it was ended. Whether it can is no matter: it is killed with the rest.
        if let Some(session) = self.warm.take().await {
            let _ = session.end_processes().await;
        }
        let ended = match self.plain.script(KILL_ALL, &[]).await {
            Ok(ExecState::Exited(_)) => Ok(()),
            // Nothing can be started in there any more, as when it is full of processes.
            Ok(ExecState::NotStarted | ExecState::Running) => self.restart().await,
            Err(EngineError::Conflict { .. }) if self.life.state() == State::Stopped => Ok(()),
            // It did not survive what ran in it. Its files did.
            Err(EngineError::Conflict { .. }) => {
                self.warm.tell(self.why_stopped().await.to_string());
                self.restart().await
            }
            Err(error) => Err(self.explain(error).await),
        };
        if ended.is_err() {
            self.used.store(true, Ordering::Relaxed);
        }
        ended
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Running, &self.name)?;
        self.run().await
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Stopped, &self.name)?;
        self.let_go_of_network().await;
        for container in self.containers() {
            if let Err(error) = self.engine().kill_container(container).await {
                return Err(self.explain(error).await);
            }
        }
        Ok(())
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.life.enter(State::Closed, &self.name)?;
        self.let_go_of_network().await;
        for container in self.containers() {
            if let Err(error) = self.engine().remove_container(container).await {
                return Err(self.explain(error).await);
            }
        }
        let place = self.place.clone();
        let removed = tokio::task::spawn_blocking(move || place.remove()).await;
        removed
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|source| on_host("remove", &self.place, source))
    }
}

impl DockerSandbox {
    async fn run_warm(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.ensure_sealed().await?;
        let session = match self.warm.session().await {
            Ok(Some(session)) => session,
            Ok(None) => return self.run_plain(command, output).await,
            Err(error) => return Err(self.explain(error).await),
        };
        self.used.store(true, Ordering::Relaxed);
        let started = Timestamp::now();
        match session.exec(command, output).await {
            Ok(exit) => Ok(self.with_cause(exit, started).await),
            Err(error) => match error.cause::<SessionError>() {
                Some(lost) => self.survive(command, lost.clone()).await,
                None => Err(error),
            },
        }
    }

    async fn run_plain(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.ensure_sealed().await?;
        self.used.store(true, Ordering::Relaxed);
        let started = Timestamp::now();
        match self.plain.run(command, &self.shelf.root, output).await {
            Ok(exit) => Ok(self.with_cause(exit, started).await),
            Err(PlainError::Start(source)) => Err(SandboxError::not_started(&command.program, source)),
            Err(PlainError::Engine(error)) => Err(self.explain(error).await),
        }
    }

    /// Lets a command run for as long as there is room on the disk.
    async fn within_disk(
        &self,
        run: impl Future<Output = Result<Exit, SandboxError>> + Send,
    ) -> Result<Exit, SandboxError> {
        let reason = tokio::select! {
            ended = run => return ended,
            reason = self.disk.runs_out() => reason,
        };
        self.end_processes().await?;
        let message = format!(
            "all processes in the sandbox `{}` were ended: {reason}",
            self.name
        );
        Err(SandboxError::new(SandboxErrorKind::Failed, message).with_hint(Some(
            "find what uses the disk with `ralph sandbox exec`, free some space or raise `sandbox.resources.disk`, then \
             run `ralph resume`",
        )))
    }
}
