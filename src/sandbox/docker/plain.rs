//! One command by the engine's own exec: nothing of ours stands between it and the engine.
//!
//! It is slower than the session and knows less: the engine tells a code and no signal, and lets go of the streams of
//! a command that has ended by its own clock. Evidence comes this way.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use super::super::limits::{Ending, Limits};
use super::proxy;
use crate::engine::{ContainerExec, Engine, EngineError, ExecOutput, ExecSpec, ExecState};
use crate::exec::{Command, Exit, ExitStatus, OutputRecorder, OutputSink, OutputStream};
use crate::gateway::Phantom;

/// How long a command that was asked to end may take, and how long what was killed.
const GRACE: Duration = Duration::from_secs(1);
/// How long the engine may take to know that a command has ended whose streams have.
const SETTLING: Duration = Duration::from_secs(10);
/// How long to leave the engine before it is asked again.
const PAUSE: Duration = Duration::from_millis(5);
/// Ends the processes of a command.
const END: &str = include_str!("end.sh");
/// The variable by which they are known.
const MARK: &str = "RALPH_MARK";

/// Why a command has no exit.
#[derive(Debug)]
pub(super) enum PlainError {
    /// It could not be started.
    Start(io::Error),
    /// The engine failed.
    Engine(EngineError),
}

impl From<EngineError> for PlainError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// A container to run commands in.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub(super) engine: Engine,
    pub(super) container: String,
    /// Whom the explicit proxy serves, where commands are told of it.
    pub(super) proxy: Option<Phantom>,
}

impl Plain {
    /// Runs a command to its end; one without a directory of its own starts in `root`.
    pub(super) async fn run(
        &self,
        command: &Command,
        root: &Path,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, PlainError> {
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
            cwd: Some(command.cwd.as_ref().map_or(root.to_owned(), |dir| root.join(dir))),
            stdin: command.stdin.is_some(),
        };
        let started = Instant::now();
        let exec = self.engine.exec(&self.container, &spec).await?;
        let guard = Guard(Some((self.clone(), mark)));
        let mut running = Running::new(exec, command);
        let ending = running.drive(&Limits::of(command, started), output).await?;
        let status = match ending {
            Ending::Finished => self.settled(&mut running).await?,
            Ending::TimedOut => ExitStatus::TimedOut,
            Ending::Idle => ExitStatus::Idle,
        };
        if ending != Ending::Finished {
            guard.end(&mut running, output).await?;
        }
        guard.release();
        Ok(running.exit(status, started, output))
    }

    /// The variables that commands have besides those of the container.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        let told = |phantom| proxy::variables(phantom, proxy::ADDRESS);
        self.proxy.as_ref().map(told).unwrap_or_default()
    }

    /// Runs a shell script to its end and drops what it prints.
    pub(super) async fn script(&self, script: &str, args: &[&str]) -> Result<ExecState, EngineError> {
        let words = [&["/bin/sh", "-c", script, "sh"], args].concat();
        let spec = ExecSpec {
            argv: words.into_iter().map(str::to_owned).collect(),
            env: BTreeMap::new(),
            cwd: Some("/".into()),
            stdin: false,
        };
        let mut exec = self.engine.exec(&self.container, &spec).await?;
        while let Some(piece) = exec.next().await {
            piece?;
        }
        ended(&mut exec).await
    }

    async fn settled(&self, running: &mut Running<'_>) -> Result<ExitStatus, PlainError> {
        match ended(&mut running.exec).await? {
            ExecState::Exited(code) => Ok(ExitStatus::Code(code)),
            ExecState::Running | ExecState::NotStarted => {
                let said = String::from_utf8_lossy(&running.said);
                Err(PlainError::Start(io::Error::new(
                    io::ErrorKind::NotFound,
                    said.trim().to_owned(),
                )))
            }
        }
    }
}

/// How the engine says that a command ended whose streams have: it knows a moment later.
async fn ended(exec: &mut ContainerExec) -> Result<ExecState, EngineError> {
    let give_up = Instant::now() + SETTLING;
    loop {
        match exec.state().await? {
            ExecState::Running if Instant::now() < give_up => sleep(PAUSE).await,
            state => return Ok(state),
        }
    }
}

/// Ends the command when it is dropped before its time.
struct Guard(Option<(Plain, String)>);

impl Guard {
    /// Asks the command and everything it started to end, then kills it.
    async fn end(&self, running: &mut Running<'_>, output: &mut dyn OutputSink) -> Result<(), PlainError> {
        for signal in ["TERM", "KILL"] {
            if let Some((plain, mark)) = &self.0 {
                plain.script(END, &[mark, signal]).await?;
            }
            running.drive(&Limits::only(GRACE), output).await?;
        }
        Ok(())
    }

    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some((plain, mark)) = self.0.take() else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Nobody is left to tell.
            runtime.spawn(async move { plain.script(END, &[&mark, "KILL"]).await });
        }
    }
}

/// A command while it runs.
struct Running<'a> {
    exec: ContainerExec,
    input: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    rest: &'a [u8],
    stdout: OutputRecorder,
    stderr: OutputRecorder,
    /// What the engine, and not the command, said.
    said: Vec<u8>,
    streams_held: bool,
}

impl<'a> Running<'a> {
    fn new(mut exec: ContainerExec, command: &'a Command) -> Self {
        Self {
            input: exec.stdin.take(),
            exec,
            rest: command.stdin.as_deref().unwrap_or_default(),
            stdout: OutputRecorder::new(OutputStream::Stdout, command.keep),
            stderr: OutputRecorder::new(OutputStream::Stderr, command.keep),
            said: Vec::new(),
            streams_held: true,
        }
    }

    /// Feeds input and takes output until the streams end or a limit is reached.
    async fn drive(&mut self, limits: &Limits, output: &mut dyn OutputSink) -> Result<Ending, EngineError> {
        let mut heard = Instant::now();
        loop {
            if !self.streams_held {
                return Ok(Ending::Finished);
            }
            tokio::select! {
                piece = self.exec.next() => {
                    heard = Instant::now();
                    match piece.transpose()? {
                        Some(ExecOutput::Stdout(bytes)) => self.stdout.push(&bytes, output),
                        Some(ExecOutput::Stderr(bytes)) => self.stderr.push(&bytes, output),
                        Some(ExecOutput::Engine(bytes)) => self.said.extend_from_slice(&bytes),
                        None => self.streams_held = false,
                    }
                }
                () = feed(&mut self.input, &mut self.rest), if self.input.is_some() => {}
                ending = limits.ring(heard) => return Ok(ending),
            }
        }
    }

    fn exit(mut self, status: ExitStatus, started: Instant, output: &mut dyn OutputSink) -> Exit {
        self.stdout.finish(output);
        self.stderr.finish(output);
        Exit {
            status,
            duration: started.elapsed(),
            stdout: self.stdout.into_captured(),
            stderr: self.stderr.into_captured(),
            streams_held: self.streams_held,
        }
    }
}

/// Gives as much as is taken; lets go after the last byte, or when nobody takes any more.
async fn feed(input: &mut Option<Pin<Box<dyn AsyncWrite + Send>>>, rest: &mut &[u8]) {
    let Some(pipe) = input else { return };
    match pipe.write(rest).await {
        Ok(written) if written < rest.len() => *rest = &rest[written..],
        Ok(_) | Err(_) => {
            let _ = pipe.shutdown().await;
            *input = None;
        }
    }
}
