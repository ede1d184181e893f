//! One live container and its workspace.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use async_trait::async_trait;

use super::super::files::{FileError, Files};
use super::super::{Entry, Sandbox, SandboxError};
use super::place::Place;
use super::plain::{Plain, PlainError};
use super::plan::ROOT;
use crate::engine::{ContainerState, Engine, EngineError, ExecState};
use crate::exec::{Command, Exit, OutputSink};

/// Kills every process of the agent's at once: all that this one may kill, which is all but the first. The kernel
/// does it in one go, so that nothing can be started meanwhile.
const KILL_ALL: &str = "kill -9 -1";

/// Whether commands may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Stopped,
    Closed,
}

/// One live container and its workspace.
#[derive(Debug)]
pub(super) struct DockerSandbox {
    name: String,
    root: PathBuf,
    place: Place,
    files: Files,
    plain: Plain,
    state: RwLock<State>,
}

impl DockerSandbox {
    /// The sandbox at this place, whose container has its name and runs.
    pub(super) fn new(engine: Engine, place: Place, files: Files) -> Self {
        let name = place.name();
        Self {
            root: PathBuf::from(ROOT),
            files,
            plain: Plain {
                engine,
                container: name.clone(),
            },
            place,
            name,
            state: RwLock::new(State::Running),
        }
    }

    fn engine(&self) -> &Engine {
        &self.plain.engine
    }

    fn state(&self) -> State {
        *self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, next: State) -> Result<(), SandboxError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if *state == State::Closed && next != State::Closed {
            return Err(self.gone());
        }
        *state = next;
        Ok(())
    }

    fn gone(&self) -> SandboxError {
        SandboxError::Gone {
            id: self.name.clone(),
        }
    }

    fn lost(&self, reason: &str) -> SandboxError {
        SandboxError::Lost {
            id: self.name.clone(),
            reason: reason.to_owned(),
        }
    }

    /// What an error of the engine's means for the sandbox.
    async fn explain(&self, error: EngineError) -> SandboxError {
        match error {
            EngineError::NotFound { .. } => self.gone(),
            EngineError::Conflict { .. } => self.why_stopped(error).await,
            EngineError::WentAway { .. } | EngineError::NoEngine { .. } => {
                self.lost("the container engine does not answer")
            }
            error => SandboxError::Engine {
                id: self.name.clone(),
                source: Box::new(error),
            },
        }
    }

    async fn why_stopped(&self, error: EngineError) -> SandboxError {
        if self.state() == State::Stopped {
            return SandboxError::Stopped {
                id: self.name.clone(),
            };
        }
        match self.engine().container(&self.name).await {
            Ok(None) => self.gone(),
            Ok(Some(container)) => match container.state {
                ContainerState::OutOfMemory => self.lost("it was killed for its use of memory"),
                ContainerState::Stopped | ContainerState::Created => self.lost("its container was stopped"),
                ContainerState::Paused => self.lost("its container was paused"),
                ContainerState::Running => SandboxError::Engine {
                    id: self.name.clone(),
                    source: Box::new(error),
                },
            },
            Err(_) => self.lost("the container engine does not answer"),
        }
    }

    /// The path below the workspace that a path inside means.
    fn below<'p>(&self, path: &'p Path) -> Result<&'p Path, SandboxError> {
        let below = if path.is_absolute() {
            path.strip_prefix(&self.root).ok()
        } else {
            Some(path)
        };
        below
            .filter(|below| !below.components().any(|part| part == Component::RootDir))
            .ok_or_else(|| SandboxError::Outside {
                path: path.to_owned(),
            })
    }

    /// Does something with the files where waiting for a disk holds nobody up.
    async fn with_files<T: Send + 'static>(
        &self,
        operation: &'static str,
        path: &Path,
        work: impl FnOnce(&Files, &Path) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let (files, below) = (self.files.clone(), self.below(path)?.to_owned());
        tokio::task::spawn_blocking(move || work(&files, &below))
            .await
            .unwrap_or_else(|error| Err(FileError::Io(io::Error::other(error))))
            .map_err(|error| error.named(operation, path, &self.name))
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
    fn id(&self) -> &str {
        &self.name
    }

    fn root(&self) -> &Path {
        &self.root
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        match self.plain.run(command, &self.root, output).await {
            Ok(exit) => Ok(exit),
            Err(PlainError::Start(source)) => Err(SandboxError::Start {
                program: command.program.clone(),
                source,
            }),
            Err(PlainError::Engine(error)) => Err(self.explain(error).await),
        }
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        match self.plain.script(KILL_ALL, &[]).await {
            Ok(ExecState::Exited(_)) => Ok(()),
            // Nothing can be started in there any more, as when it is full of processes.
            Ok(ExecState::NotStarted | ExecState::Running) => self.restart().await,
            Err(EngineError::Conflict { .. }) if self.state() == State::Stopped => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, SandboxError> {
        self.with_files("read", path, move |files, path| files.read(path, limit))
            .await
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        let bytes = bytes.to_owned();
        self.with_files("write", path, move |files, path| files.write(path, &bytes, mode))
            .await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        let bytes = bytes.to_owned();
        self.with_files("append to", path, move |files, path| files.append(path, &bytes))
            .await
    }

    async fn list(&self, path: &Path) -> Result<Vec<Entry>, SandboxError> {
        self.with_files("list", path, Files::list).await
    }

    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError> {
        self.with_files("make the directory", path, Files::mkdir).await
    }

    async fn remove(&self, path: &Path) -> Result<(), SandboxError> {
        self.with_files("remove", path, Files::remove).await
    }

    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError> {
        let from = from.to_owned();
        self.with_files("upload to", to, move |files, to| files.upload(&from, to))
            .await
    }

    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError> {
        let to = to.to_owned();
        self.with_files("download", from, move |files, from| {
            files.download(from, &to, limit)
        })
        .await
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.enter(State::Running)?;
        match self.engine().start_container(&self.name).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.enter(State::Stopped)?;
        match self.engine().kill_container(&self.name).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn preview(&self, _port: u16) -> Result<Option<String>, SandboxError> {
        Ok(None)
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.enter(State::Closed)?;
        if let Err(error) = self.engine().remove_container(&self.name).await {
            return Err(self.explain(error).await);
        }
        let place = self.place.clone();
        let removed = tokio::task::spawn_blocking(move || place.remove()).await;
        removed
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|source| SandboxError::Host {
                operation: "remove",
                path: self.place.workspace(),
                source,
            })
    }
}

impl DockerSandbox {
    /// Ends everything in it by stopping it whole.
    async fn restart(&self) -> Result<(), SandboxError> {
        let restarted = async {
            self.engine().kill_container(&self.name).await?;
            self.engine().start_container(&self.name).await
        };
        match restarted.await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.explain(error).await),
        }
    }
}
