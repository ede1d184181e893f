//! One command of a session: its streams, its keeper and its limits.

use std::io::{PipeReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::keeper::{self, KeeperReport, KeeperRequest};
use super::message::{CHUNK, Channel, CommandLimits, CommandStatus, FromGuest, WINDOW};
use super::sys::{self, Signal};
use super::write_queue::WriteQueue;

/// How long a command may take to exit after `SIGTERM`.
const TERM_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for the end of the output of a command whose processes are all dead.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The status of a command that was killed together with its keeper.
const KILLED: CommandStatus = CommandStatus::Signal(Signal::Kill as i32);

/// A command, from its start until its end is reported.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) keeper: KeeperLink,
    pub(crate) stdin: Option<StdinPipe>,
    /// Standard output and standard error.
    outputs: [OutputPipe; 2],
    limits: CommandLimits,
    started: Instant,
    /// When it last printed something, or could not because ralph did not read its output.
    last_output: Instant,
    exited: Option<(Instant, CommandStatus)>,
    ending: Option<Ending>,
}

/// Why a command is being ended, and the current step.
#[derive(Clone, Copy, Debug)]
struct Ending {
    cause: Cause,
    step: Step,
    /// The deadline for the next step.
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// It exited, but a child holds its output streams open.
    StreamsHeld,
    TimedOut,
    Idle,
    /// On request of ralph.
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// `SIGTERM` was sent.
    Terminating,
    /// Its keeper kills all its processes.
    Killing,
    /// All its processes are dead; the rest of its output is being read.
    Draining,
}

/// What the server has to do about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobAction {
    /// Report its exit. It ended by itself; processes that it left may go on.
    Release,
    /// Report its exit. All its processes are dead.
    Forget,
    /// Its keeper does not respond.
    AbandonKeeper,
}

impl Job {
    pub(crate) fn new(
        keeper: KeeperLink,
        stdin: Option<StdinPipe>,
        outputs: [PipeReader; 2],
        limits: CommandLimits,
    ) -> Self {
        let now = Instant::now();
        Self {
            keeper,
            stdin,
            outputs: outputs.map(|pipe| OutputPipe {
                pipe: Some(pipe),
                credit: WINDOW,
            }),
            limits,
            started: now,
            last_output: now,
            exited: None,
            ending: None,
        }
    }

    pub(crate) fn output(&mut self, channel: Channel) -> &mut OutputPipe {
        let [stdout, stderr] = &mut self.outputs;
        match channel {
            Channel::Stdout => stdout,
            Channel::Stderr => stderr,
        }
    }

    /// The output pipes to poll.
    pub(crate) fn outputs_to_poll(&self) -> impl Iterator<Item = (Channel, &PipeReader)> {
        let pipes = [Channel::Stdout, Channel::Stderr].into_iter().zip(&self.outputs);
        pipes.filter_map(|(channel, output)| {
            let pipe = output.pipe.as_ref().filter(|_| output.credit > 0)?;
            Some((channel, pipe))
        })
    }

    /// Reads the next piece of its output.
    pub(crate) fn read_output<'a>(&mut self, channel: Channel, chunk: &'a mut [u8]) -> &'a [u8] {
        self.last_output = Instant::now();
        self.output(channel).read(chunk)
    }

    /// Records that the command itself has exited.
    pub(crate) fn set_exited(&mut self, status: ExitStatus) {
        let status = match status.code() {
            Some(code) => CommandStatus::Code(code),
            None => CommandStatus::Signal(status.signal().unwrap_or_default()),
        };
        self.exited = Some((Instant::now(), status));
    }

    /// Records that all its processes are dead.
    pub(crate) fn set_gone(&mut self) {
        let cause = self.ending.map_or(Cause::Killed, |ending| ending.cause);
        self.enter(cause, Step::Draining, DRAIN_TIMEOUT);
        self.exited.get_or_insert((Instant::now(), KILLED));
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        if self.ending.is_none_or(|ending| ending.step == Step::Terminating) {
            self.kill_because(self.ending.map_or(Cause::Killed, |ending| ending.cause));
        }
    }

    /// Whether its keeper is killing its processes.
    pub(crate) fn is_being_killed(&self) -> bool {
        self.ending.is_some_and(|ending| ending.step == Step::Killing)
    }

    /// Its keeper, unless all processes are dead.
    pub(crate) fn active_keeper(&self) -> Option<&KeeperLink> {
        let gone = self.ending.is_some_and(|ending| ending.step == Step::Draining);
        (!gone).then_some(&self.keeper)
    }

    /// Takes the step that is due, and returns what the server has to do. `backed_up`: ralph reads no output at the moment.
    pub(crate) fn advance(&mut self, now: Instant, backed_up: bool) -> Option<JobAction> {
        if backed_up || self.outputs.iter().any(OutputPipe::is_starved) {
            self.extend_deadlines(now);
        }
        let closed = !self.has_open_output();
        let finished = closed && self.exited.is_some();
        let Some(Ending { cause, step, until }) = self.ending else {
            if finished {
                return Some(JobAction::Release);
            }
            if let Some((_, cause)) = self.limit().filter(|(at, _)| *at <= now) {
                self.keeper.send(KeeperRequest::Terminate);
                self.enter(cause, Step::Terminating, TERM_TIMEOUT);
            }
            return None;
        };
        match step {
            Step::Terminating if finished || until <= now => {
                self.kill_because(cause);
                None
            }
            Step::Killing if until <= now => Some(JobAction::AbandonKeeper),
            Step::Draining if closed || until <= now => Some(JobAction::Forget),
            Step::Terminating | Step::Killing | Step::Draining => None,
        }
    }

    /// When [`Job::advance`] must be called even if nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.ending {
            Some(ending) => Some(ending.until),
            None => self.limit().map(|(at, _)| at),
        }
    }

    /// The message that reports its end.
    pub(crate) fn exit_message(&self) -> FromGuest<'static> {
        let own = self.exited.map_or(KILLED, |(_, status)| status);
        let status = match self.ending.map(|ending| ending.cause) {
            Some(Cause::TimedOut) => CommandStatus::TimedOut,
            Some(Cause::Idle) => CommandStatus::Idle,
            Some(Cause::StreamsHeld | Cause::Killed) | None => own,
        };
        let held = |ending: Ending| ending.cause == Cause::StreamsHeld;
        let streams_held = self.has_open_output() || self.ending.is_some_and(held);
        FromGuest::Exit { status, streams_held }
    }

    fn has_open_output(&self) -> bool {
        self.outputs.iter().any(|output| output.pipe.is_some())
    }

    /// The limit that is reached first. After the command exited, only the wait for its streams is limited.
    fn limit(&self) -> Option<(Instant, Cause)> {
        let at = |from: Instant, limit: Option<Duration>, cause| {
            let at = limit.and_then(|limit| from.checked_add(limit))?;
            Some((at, cause))
        };
        if let Some((exited, _)) = self.exited {
            return at(exited, Some(self.limits.grace), Cause::StreamsHeld);
        }
        let timeout = at(self.started, self.limits.timeout, Cause::TimedOut);
        let idle = at(self.last_output, self.limits.idle, Cause::Idle);
        timeout.into_iter().chain(idle).min_by_key(|(at, _)| *at)
    }

    /// Excludes the time in which ralph does not read its output.
    fn extend_deadlines(&mut self, now: Instant) {
        self.last_output = now;
        if let Some((exited, _)) = &mut self.exited {
            *exited = now;
        }
        if let Some(ending) = &mut self.ending
            && ending.step == Step::Draining
        {
            ending.until = now + DRAIN_TIMEOUT;
        }
    }

    fn kill_because(&mut self, cause: Cause) {
        self.keeper.send(KeeperRequest::Kill);
        self.enter(cause, Step::Killing, keeper::KILL_TIMEOUT * 2);
    }

    fn enter(&mut self, cause: Cause, step: Step, timeout: Duration) {
        let until = Instant::now() + timeout;
        self.ending = Some(Ending { cause, step, until });
    }
}

/// The guest's connection to a keeper.
#[derive(Debug)]
pub(crate) struct KeeperLink {
    pub(crate) stream: UnixStream,
    pub(crate) pid: i32,
}

impl KeeperLink {
    /// Sends a request, and continues a keeper that was stopped.
    pub(crate) fn send(&self, request: KeeperRequest) {
        // An error means that the keeper is gone, which the end of its stream shows.
        let _ = (&self.stream).write_all(&[request as u8]);
        sys::send_signal(Signal::Continue, self.pid);
    }

    /// The next report; `None` if the keeper is gone.
    pub(crate) fn read_report(&self) -> Option<KeeperReport> {
        KeeperReport::read(&self.stream)
    }
}

/// An output stream of a command.
#[derive(Debug)]
pub(crate) struct OutputPipe {
    /// `None` if the stream has ended.
    pipe: Option<PipeReader>,
    /// How many bytes ralph is ready to receive.
    pub(crate) credit: usize,
}

impl OutputPipe {
    /// Reads the next piece; an empty one means that the stream has ended.
    fn read<'a>(&mut self, chunk: &'a mut [u8]) -> &'a [u8] {
        let limit = self.credit.min(chunk.len()).min(CHUNK);
        let read = match &mut self.pipe {
            Some(pipe) => pipe.read(&mut chunk[..limit]).unwrap_or(0),
            None => 0,
        };
        if read == 0 {
            self.pipe = None;
        }
        self.credit -= read;
        &chunk[..read]
    }

    fn is_starved(&self) -> bool {
        self.pipe.is_some() && self.credit == 0
    }
}

/// The standard input of a command.
#[derive(Debug)]
pub(crate) struct StdinPipe {
    pub(crate) queue: WriteQueue,
    /// Whether to close it once the queue is empty.
    pub(crate) ended: bool,
}

impl StdinPipe {
    /// Whether it needs no poll: there is nothing to write, and more may follow.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.ended && self.queue.len() == 0
    }
}
