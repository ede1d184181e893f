//! One command while it runs.

use std::io;
use std::process;
use std::time::Duration;

use futures_util::stream::{BoxStream, select, try_unfold};
use futures_util::{FutureExt, Stream, StreamExt};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin};
use tokio::time::Instant;

use super::super::{Command, CommandOutput, Exit, ExitStatus, OutputSink, OutputStream, WaitLimits};
use super::group::ProcessGroup;
use super::mark::ProcessMark;
use super::stdin::send_input;

/// How long a command may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// How long to wait for the streams of a command whose processes were all killed.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// How many chunks of output are still read after a limit was reached.
const LAST_CHUNKS: usize = 64;

/// How much is read at once: the capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// A command that was started. Dropping it ends the command and everything it started.
pub struct RunningCommand<'a> {
    command: &'a Command,
    grace: Duration,
    started: Instant,
    exited: Option<process::ExitStatus>,
    // Declared before the child, because dropping the child reaps the leader and frees the id of the group.
    group: ProcessGroup,
    child: Child,
    stdin: Option<ChildStdin>,
    /// The input that was not written yet.
    input: &'a [u8],
    chunks: BoxStream<'static, io::Result<(OutputStream, Vec<u8>)>>,
    /// Whether more output may come.
    is_open: bool,
    recorded: CommandOutput,
}

impl<'a> RunningCommand<'a> {
    pub(super) fn new(
        mut child: Child,
        command: &'a Command,
        mark: ProcessMark,
        started: Instant,
        grace: Duration,
    ) -> io::Result<Self> {
        let group = ProcessGroup::new(&child, mark)?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let chunks = select(
            chunks(OutputStream::Stdout, stdout),
            chunks(OutputStream::Stderr, stderr),
        );
        Ok(Self {
            command,
            grace,
            started,
            exited: None,
            group,
            stdin: child.stdin.take(),
            child,
            input: command.stdin.as_deref().unwrap_or_default(),
            chunks: chunks.boxed(),
            is_open: true,
            recorded: CommandOutput::new(command.keep),
        })
    }

    /// Waits until the command ends, or ends it when it reaches a limit. Passes each line to `output` as it arrives.
    pub async fn finish(mut self, output: &mut dyn OutputSink) -> io::Result<Exit> {
        let limits = WaitLimits::new(self.command, self.started);
        let limit = self.drive(limits, Some(self.grace), output).await?;
        let held_after_exit = self.exited.is_some() && self.is_open;
        let status = match self.exited {
            Some(status) => status.into(),
            None => limit.unwrap_or(ExitStatus::TimedOut),
        };
        match limit {
            None => self.group.release(),
            Some(_) => self.end(output).await?,
        }
        let streams_held = held_after_exit || self.is_open;
        let duration = self.started.elapsed();
        Ok(self.recorded.into_exit(status, duration, streams_held, output))
    }

    /// Terminates the group, then kills it and every process that left it.
    async fn end(&mut self, output: &mut dyn OutputSink) -> io::Result<()> {
        self.group.signal(Signal::TERM);
        self.drive(WaitLimits::timeout(TERM_GRACE), None, output).await?;
        self.group.kill().await?;
        self.drive(WaitLimits::timeout(KILL_GRACE), None, output).await?;
        Ok(())
    }

    /// Writes input and reads output until the command and its streams have ended, or a limit is reached, which it
    /// returns. With a grace period, only that counts once the command has ended.
    async fn drive(
        &mut self,
        mut limits: WaitLimits,
        grace: Option<Duration>,
        output: &mut dyn OutputSink,
    ) -> io::Result<Option<ExitStatus>> {
        let mut last_output = Instant::now();
        while self.exited.is_none() || self.is_open {
            let had_exited = self.exited.is_some();
            tokio::select! {
                status = self.child.wait(), if !had_exited => self.exited = Some(status?),
                chunk = self.chunks.next(), if self.is_open => {
                    self.record(chunk, output)?;
                    last_output = Instant::now();
                }
                () = send_input(&mut self.stdin, &mut self.input), if self.stdin.is_some() => {}
                limit = limits.exceeded(last_output) => {
                    let read = self.poll_once_more(output)?;
                    let ended = self.exited.is_some() && !(had_exited && self.is_open);
                    if limit == ExitStatus::Idle && read {
                        last_output = Instant::now();
                    } else if !ended {
                        return Ok(Some(limit));
                    }
                }
            }
            if let (false, Some(_), Some(grace)) = (had_exited, self.exited, grace) {
                limits = WaitLimits::timeout(grace);
            }
        }
        Ok(None)
    }

    /// Reads output and an exit status that arrived in time but were not seen yet, because the host is busy. Returns
    /// whether there was output.
    fn poll_once_more(&mut self, output: &mut dyn OutputSink) -> io::Result<bool> {
        let mut read = false;
        // Bounded, because a command may never stop printing.
        for _ in 0..LAST_CHUNKS {
            let next = self.chunks.next().now_or_never().filter(|_| self.is_open);
            let Some(chunk) = next else { break };
            self.record(chunk, output)?;
            read = true;
        }
        if self.exited.is_none() {
            self.exited = self.child.try_wait()?;
        }
        Ok(read)
    }

    /// Records a chunk, or that both streams have ended.
    fn record(
        &mut self,
        chunk: Option<io::Result<(OutputStream, Vec<u8>)>>,
        output: &mut dyn OutputSink,
    ) -> io::Result<()> {
        match chunk.transpose()? {
            Some((stream, bytes)) => self.recorded.push(stream, &bytes, output),
            None => self.is_open = false,
        }
        Ok(())
    }
}

/// The output of one stream, as it arrives.
fn chunks(
    stream: OutputStream,
    pipe: impl AsyncRead + Unpin,
) -> impl Stream<Item = io::Result<(OutputStream, Vec<u8>)>> {
    try_unfold(pipe, move |mut pipe| async move {
        let mut chunk = Vec::with_capacity(CHUNK);
        let read = pipe.read_buf(&mut chunk).await?;
        Ok((read > 0).then_some(((stream, chunk), pipe)))
    })
}
