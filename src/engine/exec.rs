//! Runs commands in a container through the exec API of the engine.

use std::collections::BTreeMap;
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
use super::{Engine, EngineError, EngineKind};

/// The buffer size for output.
const CHUNK: usize = 64 * 1024;

/// How podman ends the message about a command that it could not start, and the exit codes of such a command.
const REFUSALS: [&str; 2] = [
    ": OCI runtime attempted to invoke a command that was not found",
    ": OCI permission denied",
];
const CANNOT_EXECUTE: i64 = 126;
const NOT_FOUND: i64 = 127;

/// A command to run in a container. It cannot be printed, since the values of variables may be confidential.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment variables in addition to those of the container.
    pub env: BTreeMap<String, String>,
    /// The working directory; `None` is that of the container.
    pub cwd: Option<PathBuf>,
    /// Whether its standard input is connected to [`ContainerExec::stdin`]. Otherwise it is empty.
    pub stdin: bool,
}

/// A piece of the output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutput {
    /// From its standard output.
    Stdout(Bytes),
    /// From its standard error.
    Stderr(Bytes),
    /// A message of the engine: why the command could not be started.
    Engine(Bytes),
}

/// The state of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecState {
    /// It is running.
    Running,
    /// It could not be started.
    NotStarted,
    /// It exited with this code: 128 plus the number of the signal when a signal ended it.
    Exited(i32),
}

/// A started command and its streams. Dropping it closes the streams and leaves the command running.
pub struct ContainerExec {
    engine: Engine,
    id: String,
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    /// Whether the next piece of output is the first.
    at_start: bool,
    /// Whether podman printed that it could not start the command.
    refused: bool,
    /// The standard input of the command. Dropping it ends the input.
    pub stdin: Option<Pin<Box<dyn AsyncWrite + Send>>>,
}

impl Engine {
    /// Starts a command in a running container.
    pub async fn exec(&self, container: &str, spec: &ExecSpec) -> Result<ContainerExec, EngineError> {
        let failed = |error| EngineError::from_api(container, error);
        let options = CreateExecOptions {
            attach_stdin: Some(spec.stdin),
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
            StartExecResults::Attached { output, input } => Ok(ContainerExec {
                engine: self.clone(),
                id,
                output,
                at_start: true,
                refused: false,
                stdin: spec.stdin.then_some(input),
            }),
            StartExecResults::Detached => {
                let reason = "it did not attach to the streams of the command";
                Err(EngineError::invalid_response(container, reason))
            }
        }
    }
}

impl ContainerExec {
    /// The next piece of output; `None` at the end of both streams, which may be shortly after the command exited.
    pub async fn next(&mut self) -> Option<Result<ExecOutput, EngineError>> {
        let piece = self.output.next().await?;
        let is_first = std::mem::replace(&mut self.at_start, false);
        Some(match piece {
            Ok(LogOutput::StdErr { message })
                if is_first && self.engine.kind == EngineKind::Podman && is_refusal(&message) =>
            {
                self.refused = true;
                Ok(ExecOutput::Engine(message))
            }
            Ok(LogOutput::StdOut { message }) => Ok(ExecOutput::Stdout(message)),
            Ok(LogOutput::StdErr { message }) => Ok(ExecOutput::Stderr(message)),
            Ok(LogOutput::Console { message } | LogOutput::StdIn { message }) => {
                Ok(ExecOutput::Engine(message))
            }
            Err(error) => Err(EngineError::from_api(&self.id, error)),
        })
    }

    /// Asks the engine for the state of the command.
    pub async fn state(&mut self) -> Result<ExecState, EngineError> {
        let inspected = self.engine.docker.inspect_exec(&self.id).await;
        let inspected = inspected.map_err(|error| EngineError::from_api(&self.id, error))?;
        Ok(match (inspected.running, inspected.pid, inspected.exit_code) {
            (Some(true), ..) => ExecState::Running,
            // Podman forgets the number of a process that has ended, and knows its exit code once it can be removed.
            (.., code) if self.engine.kind == EngineKind::Podman => match code {
                _ if inspected.can_remove != Some(true) => ExecState::Running,
                Some(CANNOT_EXECUTE | NOT_FOUND) if self.refused => ExecState::NotStarted,
                code => exited(code),
            },
            (_, None | Some(0), _) => ExecState::NotStarted,
            (.., code) => exited(code),
        })
    }
}

/// Without an exit code, nothing shows that it ran.
fn exited(code: Option<i64>) -> ExecState {
    code.map_or(ExecState::NotStarted, |code| {
        ExecState::Exited(i32::try_from(code).unwrap_or(-1))
    })
}

/// Whether podman, which writes to the error stream of the command itself, could not start it. A command that prints the
/// same and exits with the same code looks as if it had not been started, which is no success either.
fn is_refusal(message: &[u8]) -> bool {
    let message = String::from_utf8_lossy(message);
    message.starts_with("Error: ") && REFUSALS.iter().any(|refusal| message.contains(refusal))
}

/// The standard output of a command as a reader. Its standard error is dropped.
pub struct ExecStdout {
    exec: ContainerExec,
    rest: Bytes,
}

impl ContainerExec {
    /// Reads its standard output only.
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
                // A message of the engine: the program could not be started.
                Some(Ok(LogOutput::Console { message })) => {
                    let message = String::from_utf8_lossy(&message).trim().to_owned();
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::NotFound, message)));
                }
                Some(Ok(LogOutput::StdErr { .. } | LogOutput::StdIn { .. })) => {}
            }
        }
        let taken = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(taken));
        Poll::Ready(Ok(()))
    }
}
