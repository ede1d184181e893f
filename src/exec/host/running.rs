//! One command while it runs.

use std::io;
use std::process;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until};

use super::super::{Command, Exit, ExitStatus, OutputSink};
use super::group::ProcessGroup;
use super::mark::ProcessMark;
use super::pipes::{InputPipe, OutputPipes};

/// How long a command may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// How long to wait for the streams of a command whose processes were all killed.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// How many chunks of output are still read after a limit was reached.
const LAST_CHUNKS: usize = 64;

/// A command that was started. Dropping it ends the command and everything it started.
#[derive(Debug)]
pub struct RunningCommand<'a> {
    command: &'a Command,
    grace: Duration,
    started: Instant,
    exited: Option<(Instant, process::ExitStatus)>,
    // Declared before the child, because dropping the child reaps the leader and frees the id of the group.
    group: ProcessGroup,
    child: Child,
    input: InputPipe<'a>,
    outputs: OutputPipes,
}

impl<'a> RunningCommand<'a> {
    pub(super) fn new(
        mut child: Child,
        command: &'a Command,
        mark: ProcessMark,
        started: Instant,
        grace: Duration,
    ) -> io::Result<Self> {
        Ok(Self {
            command,
            grace,
            started,
            exited: None,
            group: ProcessGroup::new(&child, mark)?,
            input: InputPipe::new(&mut child, command.stdin.as_deref().unwrap_or_default()),
            outputs: OutputPipes::new(&mut child, command.keep),
            child,
        })
    }

    /// Waits until the command ends, or ends it when it reaches a limit. Passes each line to `output` as it arrives.
    pub async fn finish(mut self, output: &mut dyn OutputSink) -> io::Result<Exit> {
        let timeout = self.command.timeout;
        let limits = Limits {
            deadline: timeout.and_then(|timeout| self.started.checked_add(timeout)),
            idle: self.command.idle,
            grace: Some(self.grace),
        };
        let reason = self.drive(&limits, output).await?;
        match reason {
            StopReason::Finished(_) => self.group.release(),
            StopReason::StreamsHeld(_) | StopReason::TimedOut | StopReason::Idle => self.end(output).await?,
        }
        let still_open = self.outputs.is_open();
        self.outputs.close(output);
        let (status, streams_held) = match reason {
            StopReason::Finished(status) => (status.into(), false),
            StopReason::StreamsHeld(status) => (status.into(), true),
            StopReason::TimedOut => (ExitStatus::TimedOut, still_open),
            StopReason::Idle => (ExitStatus::Idle, still_open),
        };
        Ok(Exit {
            status,
            duration: self.started.elapsed(),
            stdout: self.outputs.stdout.into_captured(),
            stderr: self.outputs.stderr.into_captured(),
            streams_held,
        })
    }

    /// Terminates the group, then kills it and every process that left it.
    async fn end(&mut self, output: &mut dyn OutputSink) -> io::Result<()> {
        self.group.terminate();
        self.drive(&Limits::only(TERM_GRACE), output).await?;
        self.group.kill().await?;
        self.drive(&Limits::only(KILL_GRACE), output).await?;
        Ok(())
    }

    /// Writes input and reads output until the command has ended or a limit is reached.
    async fn drive(&mut self, limits: &Limits, output: &mut dyn OutputSink) -> io::Result<StopReason> {
        let mut last_output = Instant::now();
        loop {
            if let Some((_, status)) = self.exited
                && !self.outputs.is_open()
            {
                return Ok(StopReason::Finished(status));
            }
            let next_limit = limits.next(last_output, self.exited);
            tokio::select! {
                status = self.child.wait(), if self.exited.is_none() => {
                    self.exited = Some((Instant::now(), status?));
                }
                step = self.outputs.step(output), if self.outputs.is_open() => {
                    step?;
                    last_output = Instant::now();
                }
                () = self.input.step(), if self.input.is_open() => {}
                reason = reached(next_limit) => {
                    let before = self.exited.is_some();
                    let read = self.poll_once_more(output)?;
                    match (self.exited, reason) {
                        (Some((_, status)), _) if !self.outputs.is_open() => {
                            return Ok(StopReason::Finished(status));
                        }
                        (Some(_), _) if !before => {}
                        (_, StopReason::Idle) if read => last_output = Instant::now(),
                        _ => return Ok(reason),
                    }
                }
            }
        }
    }

    /// Reads output and an exit status that arrived in time but were not seen yet, because the host is busy. Returns
    /// whether there was output.
    fn poll_once_more(&mut self, output: &mut dyn OutputSink) -> io::Result<bool> {
        let mut read = false;
        // Bounded, because a command may never stop printing.
        for _ in 0..LAST_CHUNKS {
            if !self.outputs.is_open() {
                break;
            }
            match self.outputs.step(output).now_or_never() {
                Some(step) => step?,
                None => break,
            }
            read = true;
        }
        if self.exited.is_none() {
            self.exited = self.child.try_wait()?.map(|status| (Instant::now(), status));
        }
        Ok(read)
    }
}

/// Why [`RunningCommand::drive`] stopped.
#[derive(Clone, Copy, Debug)]
enum StopReason {
    /// The command and its streams have ended.
    Finished(process::ExitStatus),
    /// The command has ended, but another process holds its streams.
    StreamsHeld(process::ExitStatus),
    TimedOut,
    Idle,
}

/// How long a command may run.
#[derive(Debug)]
struct Limits {
    deadline: Option<Instant>,
    idle: Option<Duration>,
    /// How long the streams may stay open after the command has ended.
    grace: Option<Duration>,
}

impl Limits {
    fn only(timeout: Duration) -> Self {
        Self {
            deadline: Some(Instant::now() + timeout),
            idle: None,
            grace: None,
        }
    }

    /// The limit that is reached first, and when. After the command has ended, only its grace period counts.
    fn next(
        &self,
        last_output: Instant,
        exited: Option<(Instant, process::ExitStatus)>,
    ) -> Option<(Instant, StopReason)> {
        if let (Some((at, status)), Some(grace)) = (exited, self.grace) {
            return Some((at.checked_add(grace)?, StopReason::StreamsHeld(status)));
        }
        let deadline = self.deadline.map(|at| (at, StopReason::TimedOut));
        let idle = self.idle.and_then(|idle| last_output.checked_add(idle));
        let idle = idle.map(|at| (at, StopReason::Idle));
        deadline.into_iter().chain(idle).min_by_key(|(at, _)| *at)
    }
}

/// Waits for a limit. Without one, waits forever.
async fn reached(limit: Option<(Instant, StopReason)>) -> StopReason {
    match limit {
        Some((at, reason)) => {
            sleep_until(at).await;
            reason
        }
        None => std::future::pending().await,
    }
}
