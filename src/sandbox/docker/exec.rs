//! Runs commands through the exec API of the engine, without the guest.
//!
//! This is slower than the warm session and less precise: a signal appears as an exit code, and the engine decides when
//! the streams of a finished command are closed. Evidence is gathered this way.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::time::{Instant, sleep, timeout};

use super::super::scripted_files::ScriptResult;
use super::super::{SandboxError, SandboxErrorKind};
use super::container::ROOT;
use super::{engine_failed, proxy};
use crate::engine::{ContainerExec, ContainerState, Engine, EngineError, ExecOutput, ExecSpec, ExecState};
use crate::exec::{
    Command, CommandOutput, Exit, ExitStatus, OutputSink, OutputStream, WaitLimits, send_input,
};
use crate::gateway::Phantom;

/// How long a command may take to end after SIGTERM, and after SIGKILL.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the engine may take to know the exit code of a command whose streams are closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
const EXIT_POLL: Duration = Duration::from_millis(5);
/// Signals the processes of a command, which have [`MARK`] in their environment.
const SIGNAL_MARKED: &str = include_str!("signal_marked.sh");
const MARK: &str = "RALPH_MARK";
/// The largest output of a script, and what is kept of its errors, in bytes.
const MAX_SCRIPT_OUTPUT: usize = 16 << 20;
const MAX_SCRIPT_ERRORS: usize = 4 << 10;
/// How long a script may print nothing. The agent may have left a process that keeps its streams open.
pub(super) const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);
/// Leaves out directories of the `PATH` that the agent can write to: a script must not run a program of the agent. Only words of
/// the shell itself are used.
const SAFE_PATH: &str = "safe=; IFS=:; for dir in $PATH; do if [ -d \"$dir\" ] && [ ! -w \"$dir\" ] && [ ! -O \"$dir\" ]; \
    then safe=$safe${safe:+:}$dir; fi; done; unset IFS; PATH=$safe; ";

/// What runc says about a container that has just ended; the engine may not have noticed yet.
const IN_STOPPED_CONTAINER: &str = "cannot exec in a stopped container";

/// Runs commands in one container.
#[derive(Clone, Debug)]
pub(super) struct ContainerCommands {
    pub(super) engine: Engine,
    pub(super) container: String,
    /// The credential of the explicit proxy, if commands are to use it.
    pub(super) proxy: Option<Phantom>,
}

impl ContainerCommands {
    /// Runs a command to its end. Errors of the engine are the cause of the returned error.
    pub(super) async fn run(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        let mark = format!("{:016x}", fastrand::u64(..));
        let spec = ExecSpec {
            argv: std::iter::once(&command.program)
                .chain(&command.args)
                .cloned()
                .collect(),
            env: std::iter::once((MARK.to_owned(), mark.clone()))
                .chain(self.variables())
                .chain(command.env.clone())
                .collect(),
            cwd: Some(command.dir_in(Path::new(ROOT))),
            stdin: command.stdin.is_some(),
        };
        let started = Instant::now();
        let exec = self.engine.exec(&self.container, &spec).await;
        let guard = KillOnDrop(Some((self.clone(), mark)));
        let mut running = RunningExec::new(exec.map_err(engine_failed)?, command);
        let limits = WaitLimits::new(command, started);
        let status = match running.wait(&limits, output).await.map_err(engine_failed)? {
            None => match exit_state(&mut running.exec).await.map_err(engine_failed)? {
                ExecState::Exited(code) => ExitStatus::Code(code),
                ExecState::Running | ExecState::NotStarted => {
                    return Err(self.not_started(command, &running.engine_message).await);
                }
            },
            Some(limit) => {
                guard.end(&mut running, output).await.map_err(engine_failed)?;
                limit
            }
        };
        guard.release();
        let streams_held = running.streams_held;
        Ok(running
            .output
            .into_exit(status, started.elapsed(), streams_held, output))
    }

    /// The error for a command that the engine did not start: because of its program, or because the container has ended.
    async fn not_started(&self, command: &Command, engine_message: &[u8]) -> SandboxError {
        let message = String::from_utf8_lossy(engine_message).trim().to_owned();
        let is_running = match self.engine.container(&self.container).await {
            Ok(container) => container.is_some_and(|container| container.state == ContainerState::Running),
            Err(error) => return engine_failed(error),
        };
        if is_running && !message.contains(IN_STOPPED_CONTAINER) {
            let cause = io::Error::new(io::ErrorKind::NotFound, message);
            return SandboxError::not_started(&command.program, cause);
        }
        let lost = format!(
            "its container ended before `{}` could start in it",
            command.program
        );
        SandboxError::new(SandboxErrorKind::Lost, lost).with_cause(io::Error::other(message))
    }

    /// Variables of all commands, in addition to those of the container.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        let variables = |phantom| proxy::variables(phantom, proxy::ADDRESS);
        self.proxy.as_ref().map(variables).unwrap_or_default()
    }

    /// Runs a shell script to its end and drops its output. One that the agent has stopped is still running.
    pub(super) async fn script(&self, script: &str, args: &[&str]) -> Result<ExecState, EngineError> {
        let mut exec = self.start_script(script, args, false).await?;
        while let Ok(Some(piece)) = timeout(SCRIPT_TIMEOUT, exec.next()).await {
            piece?;
        }
        exit_state(&mut exec).await
    }

    /// Runs a shell script to its end.
    pub(super) async fn script_output(
        &self,
        script: &str,
        args: &[&str],
    ) -> Result<ScriptResult, EngineError> {
        finish_script(self.start_script(script, args, false).await?).await
    }

    /// Starts a shell script.
    pub(super) async fn start_script(
        &self,
        script: &str,
        args: &[&str],
        stdin: bool,
    ) -> Result<ContainerExec, EngineError> {
        let script = format!("{SAFE_PATH}{script}");
        let words = [&["/bin/sh", "-c", &script, "sh"], args].concat();
        let spec = ExecSpec {
            argv: words.into_iter().map(str::to_owned).collect(),
            env: BTreeMap::new(),
            cwd: Some("/".into()),
            stdin,
        };
        self.engine.exec(&self.container, &spec).await
    }
}

/// Waits for the end of a script.
pub(super) async fn finish_script(mut exec: ContainerExec) -> Result<ScriptResult, EngineError> {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    while let Some(piece) = next_piece(&mut exec).await? {
        match piece {
            ExecOutput::Stdout(bytes) => output.extend_from_slice(&bytes),
            ExecOutput::Stderr(bytes) | ExecOutput::Engine(bytes) => {
                let room = MAX_SCRIPT_ERRORS.saturating_sub(errors.len());
                errors.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
        if output.len() > MAX_SCRIPT_OUTPUT {
            return Err(EngineError::invalid_response("a script", "it printed too much"));
        }
    }
    let errors = String::from_utf8_lossy(&errors).trim().to_owned();
    match exit_state(&mut exec).await? {
        ExecState::Exited(exit_code) => Ok(ScriptResult {
            exit_code,
            output: String::from_utf8_lossy(&output).into_owned(),
            errors,
        }),
        ExecState::Running | ExecState::NotStarted => Err(EngineError::invalid_response("a script", errors)),
    }
}

/// The next piece of a script's output; `None` at its end.
pub(super) async fn next_piece(exec: &mut ContainerExec) -> Result<Option<ExecOutput>, EngineError> {
    let Ok(piece) = timeout(SCRIPT_TIMEOUT, exec.next()).await else {
        let reason = format!("it printed nothing for {} s", SCRIPT_TIMEOUT.as_secs());
        return Err(EngineError::invalid_response("a script", reason));
    };
    piece.transpose()
}

/// The state of a command whose streams are closed. The engine knows the exit code a moment later.
async fn exit_state(exec: &mut ContainerExec) -> Result<ExecState, EngineError> {
    let give_up = Instant::now() + EXIT_TIMEOUT;
    loop {
        match exec.state().await? {
            ExecState::Running if Instant::now() < give_up => sleep(EXIT_POLL).await,
            state => return Ok(state),
        }
    }
}

/// Kills the command with this mark if it is dropped before the command has ended.
struct KillOnDrop(Option<(ContainerCommands, String)>);

impl KillOnDrop {
    /// Ends the command and everything it started: SIGTERM first, then SIGKILL.
    async fn end(
        &self,
        running: &mut RunningExec<'_>,
        output: &mut dyn OutputSink,
    ) -> Result<(), EngineError> {
        for signal in ["TERM", "KILL"] {
            if let Some((commands, mark)) = &self.0 {
                commands.script(SIGNAL_MARKED, &[mark, signal]).await?;
            }
            running.wait(&WaitLimits::timeout(END_TIMEOUT), output).await?;
        }
        Ok(())
    }

    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let Some((commands, mark)) = self.0.take() else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // The caller is gone, so an error cannot be reported.
            runtime.spawn(async move { commands.script(SIGNAL_MARKED, &[&mark, "KILL"]).await });
        }
    }
}

/// A command while it runs.
struct RunningExec<'a> {
    exec: ContainerExec,
    stdin: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    /// The input that was not sent yet.
    input: &'a [u8],
    output: CommandOutput,
    /// What the engine itself printed: why the command could not be started.
    engine_message: Vec<u8>,
    streams_held: bool,
}

impl<'a> RunningExec<'a> {
    fn new(mut exec: ContainerExec, command: &'a Command) -> Self {
        Self {
            stdin: exec.stdin.take(),
            exec,
            input: command.stdin.as_deref().unwrap_or_default(),
            output: CommandOutput::new(command.keep),
            engine_message: Vec::new(),
            streams_held: true,
        }
    }

    /// Sends input and records output until the streams are closed or a limit is exceeded, which it returns.
    async fn wait(
        &mut self,
        limits: &WaitLimits,
        output: &mut dyn OutputSink,
    ) -> Result<Option<ExitStatus>, EngineError> {
        let mut last_output = Instant::now();
        while self.streams_held {
            tokio::select! {
                piece = self.exec.next() => {
                    last_output = Instant::now();
                    match piece.transpose()? {
                        Some(ExecOutput::Stdout(bytes)) => self.output.push(OutputStream::Stdout, &bytes, output),
                        Some(ExecOutput::Stderr(bytes)) => self.output.push(OutputStream::Stderr, &bytes, output),
                        Some(ExecOutput::Engine(bytes)) => self.engine_message.extend_from_slice(&bytes),
                        None => self.streams_held = false,
                    }
                }
                () = send_input(&mut self.stdin, &mut self.input), if self.stdin.is_some() => {}
                limit = limits.exceeded(last_output) => return Ok(Some(limit)),
            }
        }
        Ok(None)
    }
}
