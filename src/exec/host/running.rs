//! One command while it runs.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::FutureExt;
use rustix::process::Pid;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until};

use super::super::{Command, Exit, OutputSink, Status, Streams};
use super::group::Group;
use super::mark::Mark;
use super::pump::{Input, Outputs};

/// How long a command that was asked to end may take.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// How long to wait for the streams of a command whose processes were all killed.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// How many pieces of output are taken after time is up.
const LAST_LOOKS: usize = 64;

/// A command that was started. Dropping it ends the command and everything it started.
#[derive(Debug)]
pub struct Running<'a> {
    command: &'a Command,
    grace: Duration,
    started: Instant,
    exited: Option<(Instant, ExitStatus)>,
    // Before the child, which reaps the leader when it is dropped: until then the number of the group is taken.
    group: Group,
    child: Child,
    input: Input<'a>,
    outputs: Outputs,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        mut child: Child,
        command: &'a Command,
        mark: Mark,
        (started, grace): (Instant, Duration),
    ) -> io::Result<Self> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let leader = id.and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            command,
            grace,
            started,
            exited: None,
            group: Group::new(leader, mark),
            input: Input::of(&mut child, command.stdin.as_deref().unwrap_or_default()),
            outputs: Outputs::of(&mut child, command.keep),
            child,
        })
    }

    /// Waits for its end, or brings it about; each line of output goes to `output` as it comes.
    pub async fn finish(mut self, output: &mut dyn OutputSink) -> io::Result<Exit> {
        let limits = Limits {
            deadline: self
                .command
                .timeout
                .and_then(|timeout| self.started.checked_add(timeout)),
            idle: self.command.idle,
            grace: Some(self.grace),
        };
        let ending = self.drive(&limits, output).await?;
        match ending {
            Ending::Finished(_) => self.group.release(),
            Ending::Held(_) | Ending::TimedOut | Ending::Idle => self.end(output).await?,
        }
        let unheard = if self.outputs.is_open() {
            Streams::Held
        } else {
            Streams::Closed
        };
        self.outputs.close(output);
        let (status, streams) = match ending {
            Ending::Finished(status) => (status_of(status), Streams::Closed),
            Ending::Held(status) => (status_of(status), Streams::Held),
            Ending::TimedOut => (Status::TimedOut, unheard),
            Ending::Idle => (Status::Idle, unheard),
        };
        Ok(Exit {
            status,
            duration: self.started.elapsed(),
            stdout: self.outputs.stdout.into_captured(),
            stderr: self.outputs.stderr.into_captured(),
            streams,
        })
    }

    /// Asks the group to end, then kills it and what left it.
    async fn end(&mut self, output: &mut dyn OutputSink) -> io::Result<()> {
        self.group.ask_to_end();
        self.drive(&Limits::only(TERM_GRACE), output).await?;
        self.group.kill().await?;
        self.drive(&Limits::only(KILL_GRACE), output).await?;
        Ok(())
    }

    /// Feeds input and takes output until the command has ended or a limit is reached.
    async fn drive(&mut self, limits: &Limits, output: &mut dyn OutputSink) -> io::Result<Ending> {
        let mut heard = Instant::now();
        loop {
            if let Some((_, status)) = self.exited
                && !self.outputs.is_open()
            {
                return Ok(Ending::Finished(status));
            }
            let alarm = limits.next_alarm(heard, self.exited);
            tokio::select! {
                status = self.child.wait(), if self.exited.is_none() => {
                    self.exited = Some((Instant::now(), status?));
                }
                step = self.outputs.step(output), if self.outputs.is_open() => {
                    step?;
                    heard = Instant::now();
                }
                () = self.input.step(), if self.input.is_open() => {}
                ending = ring(alarm) => {
                    let looked = self.look_once_more(output)?;
                    match (self.exited, ending, looked) {
                        (Some((_, status)), ..) if !self.outputs.is_open() => {
                            return Ok(Ending::Finished(status));
                        }
                        (.., Looked::Exited) => {}
                        (_, Ending::Idle, Looked::Heard) => heard = Instant::now(),
                        _ => return Ok(ending),
                    }
                }
            }
        }
    }

    /// Takes what has come by now: on a busy machine it may have come in time, and this thread too late.
    fn look_once_more(&mut self, output: &mut dyn OutputSink) -> io::Result<Looked> {
        let mut looked = Looked::Nothing;
        // As much as may end both streams; one that never stops is not waited for.
        for _ in 0..LAST_LOOKS {
            if !self.outputs.is_open() {
                break;
            }
            match self.outputs.step(output).now_or_never() {
                Some(step) => step?,
                None => break,
            }
            looked = Looked::Heard;
        }
        if self.exited.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            self.exited = Some((Instant::now(), status));
            looked = Looked::Exited;
        }
        Ok(looked)
    }
}

/// What had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    Exited,
    Heard,
    Nothing,
}

/// Why a command is no longer waited for.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// It has ended and so have its streams.
    Finished(ExitStatus),
    /// It has ended, but something holds its streams.
    Held(ExitStatus),
    TimedOut,
    Idle,
}

/// How long a command is waited for.
#[derive(Debug)]
struct Limits {
    deadline: Option<Instant>,
    idle: Option<Duration>,
    grace: Option<Duration>,
}

impl Limits {
    fn only(wait: Duration) -> Self {
        Self {
            deadline: Some(Instant::now() + wait),
            idle: None,
            grace: None,
        }
    }

    /// The limit that will be reached first. A command that has ended by itself has only its streams left to wait for.
    fn next_alarm(&self, heard: Instant, exited: Option<(Instant, ExitStatus)>) -> Option<Alarm> {
        let alarm = |at: Option<Instant>, ending| at.map(|at| Alarm { at, ending });
        if let (Some((at, status)), Some(grace)) = (exited, self.grace) {
            return alarm(at.checked_add(grace), Ending::Held(status));
        }
        let deadline = alarm(self.deadline, Ending::TimedOut);
        let idle = alarm(self.idle.and_then(|idle| heard.checked_add(idle)), Ending::Idle);
        [deadline, idle]
            .into_iter()
            .flatten()
            .min_by_key(|alarm| alarm.at)
    }
}

/// When to stop waiting, and why.
#[derive(Clone, Copy, Debug)]
struct Alarm {
    at: Instant,
    ending: Ending,
}

async fn ring(alarm: Option<Alarm>) -> Ending {
    match alarm {
        Some(alarm) => {
            sleep_until(alarm.at).await;
            alarm.ending
        }
        None => std::future::pending().await,
    }
}

fn status_of(status: ExitStatus) -> Status {
    match status.code() {
        Some(code) => Status::Code(code),
        None => Status::Signal(status.signal().unwrap_or_default()),
    }
}
