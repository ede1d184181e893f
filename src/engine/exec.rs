//! Commands in a container, as the engine runs them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::container_spec::pairs;
use super::{Engine, EngineError};

/// How much of the output is read at once.
const CHUNK: usize = 64 * 1024;

/// What to run in a container.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Variables beside those of the container.
    pub env: BTreeMap<String, String>,
    /// Where it starts; where the container's commands do, unless it is said.
    pub cwd: Option<PathBuf>,
    /// Whether it reads something.
    pub input: ExecInput,
}

/// Names of variables only: their values may be confidential.
impl fmt::Debug for ExecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSpec")
            .field("argv", &self.argv)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("input", &self.input)
            .finish()
    }
}

/// Whether a command reads something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecInput {
    /// Nothing: its input is at its end.
    Empty,
    /// What will be written to it.
    Streamed,
}

/// A piece of what a command printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutput {
    /// On its standard output.
    Stdout(Bytes),
    /// On its standard error.
    Stderr(Bytes),
    /// Not the command, but the engine: why it could not be started.
    Engine(Bytes),
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecState {
    /// It runs.
    Running,
    /// It could not be started.
    NotStarted,
    /// It has ended with this code; 128 and a signal's number when a signal ended it.
    Exited(i32),
}

/// A command that was started, and its streams. Dropping it lets go of the streams and leaves the command running.
pub struct Exec {
    engine: Engine,
    id: String,
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    /// What the command reads; shut down, or dropped, it is at its end.
    pub input: Option<Pin<Box<dyn AsyncWrite + Send>>>,
}

impl Engine {
    /// Starts a command in a container that runs.
    pub async fn exec(&self, container: &str, spec: &ExecSpec) -> Result<Exec, EngineError> {
        let failed = |error| EngineError::from_api(container, error);
        let options = CreateExecOptions {
            attach_stdin: Some(spec.input == ExecInput::Streamed),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            env: Some(pairs(&spec.env)),
            cmd: Some(spec.argv.clone()),
            working_dir: spec.cwd.as_ref().map(|dir| dir.to_string_lossy().into_owned()),
            ..Default::default()
        };
        let id = self
            .docker
            .create_exec(container, options)
            .await
            .map_err(failed)?
            .id;
        let options = StartExecOptions {
            output_capacity: Some(CHUNK),
            ..Default::default()
        };
        match self.docker.start_exec(&id, Some(options)).await.map_err(failed)? {
            StartExecResults::Attached { output, input } => Ok(Exec {
                engine: self.clone(),
                id,
                output,
                input: (spec.input == ExecInput::Streamed).then_some(input),
            }),
            StartExecResults::Detached => Err(EngineError::Answer {
                subject: container.to_owned(),
                reason: "it keeps the streams of a command to itself".to_owned(),
            }),
        }
    }
}

impl Exec {
    /// The next piece of output; `None` at the end of both streams, which comes when the command has ended and, at
    /// the latest, a little after.
    pub async fn next(&mut self) -> Option<Result<ExecOutput, EngineError>> {
        let piece = self.output.next().await?;
        Some(match piece {
            Ok(LogOutput::StdOut { message }) => Ok(ExecOutput::Stdout(message)),
            Ok(LogOutput::StdErr { message }) => Ok(ExecOutput::Stderr(message)),
            Ok(LogOutput::Console { message } | LogOutput::StdIn { message }) => {
                Ok(ExecOutput::Engine(message))
            }
            Err(error) => Err(EngineError::from_api(&self.id, error)),
        })
    }

    /// Asks the engine how far the command is.
    pub async fn state(&mut self) -> Result<ExecState, EngineError> {
        let found = self.engine.docker.inspect_exec(&self.id).await;
        let found = found.map_err(|error| EngineError::from_api(&self.id, error))?;
        Ok(match (found.running, found.pid, found.exit_code) {
            (Some(true), ..) => ExecState::Running,
            (_, None | Some(0), _) => ExecState::NotStarted,
            (.., code) => ExecState::Exited(i32::try_from(code.unwrap_or_default()).unwrap_or(-1)),
        })
    }
}

/// The standard output of a command as bytes to read. What comes on its standard error is dropped.
pub struct ExecStdout {
    exec: Exec,
    rest: Bytes,
}

impl Exec {
    /// Its standard output alone.
    #[must_use]
    pub fn into_stdout(self) -> ExecStdout {
        ExecStdout {
            exec: self,
            rest: Bytes::new(),
        }
    }
}

impl AsyncRead for ExecStdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.exec.output.as_mut().poll_next(context)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(LogOutput::StdOut { message })) => self.rest = message,
                // The engine's own words: the program could not be started.
                Some(Ok(LogOutput::Console { message })) => {
                    let said = String::from_utf8_lossy(&message).trim().to_owned();
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::NotFound, said)));
                }
                Some(Ok(LogOutput::StdErr { .. } | LogOutput::StdIn { .. })) => {}
            }
        }
        let taken = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(taken));
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exec({})", self.id)
    }
}
