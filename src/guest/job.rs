//! One command as the guest sees it: its streams, its keeper, its limits.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::keeper::{self, Order, Report};
use super::message::{CHUNK, Channel, FromGuest, Hold, Limits, Status, WINDOW};
use super::sys::{self, Signal};

/// How long a command that was asked to end may take.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// How long to wait for the streams of a command whose processes were all killed.
const KILL_GRACE: Duration = Duration::from_secs(1);

/// How a command looks that was killed together with its keeper.
const KILLED: Status = Status::Signal(Signal::Kill as i32);

/// A command from its start until its end was reported.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) keeper: Link,
    pub(crate) input: Option<Feed>,
    stdout: Tap,
    stderr: Tap,
    limits: Limits,
    started: Instant,
    /// When it last printed something, or could not because nobody took it.
    heard: Instant,
    exited: Option<(Instant, Status)>,
    ending: Option<Ending>,
}

/// Why a command that does not end by itself is ended, and how far that is.
#[derive(Clone, Copy, Debug)]
struct Ending {
    cause: Cause,
    step: Step,
    /// When to take the next step at the latest.
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A child of it holds its streams.
    Held,
    TimedOut,
    Idle,
    /// Ralph wants it.
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It was asked to end.
    Asked,
    /// Its keeper kills what is left of it.
    Killing,
    /// Nothing of it runs; what it printed is still on its way.
    Draining,
}

/// What to do about a command next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    Wait,
    /// It ended by itself; what it left behind may go on.
    Release,
    /// All of it has ended.
    Forget,
    /// Its keeper does not answer.
    KeeperIsLost,
}

impl Job {
    pub(crate) fn new(keeper: Link, input: Option<Feed>, outputs: [PipeReader; 2], limits: Limits) -> Self {
        let [stdout, stderr] = outputs.map(Tap::new);
        let now = Instant::now();
        Self {
            keeper,
            input,
            stdout,
            stderr,
            limits,
            started: now,
            heard: now,
            exited: None,
            ending: None,
        }
    }

    pub(crate) fn tap(&mut self, channel: Channel) -> &mut Tap {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        }
    }

    /// The pipes to watch for output.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (Channel, &PipeReader)> {
        let taps = [(Channel::Stdout, &self.stdout), (Channel::Stderr, &self.stderr)];
        taps.into_iter()
            .filter_map(|(channel, tap)| Some((channel, tap.watched()?)))
    }

    /// Reads the next piece of its output.
    pub(crate) fn hear<'a>(&mut self, channel: Channel, chunk: &'a mut [u8]) -> &'a [u8] {
        self.heard = Instant::now();
        self.tap(channel).read(chunk)
    }

    /// Its keeper said that the command itself has ended.
    pub(crate) fn note_exit(&mut self, status: Status) {
        self.exited = Some((Instant::now(), status));
    }

    /// Its keeper said, or it is clear otherwise, that nothing of it is left.
    pub(crate) fn note_gone(&mut self) {
        let cause = self.ending.map_or(Cause::Killed, |ending| ending.cause);
        self.enter(cause, Step::Draining, KILL_GRACE);
        // Whatever becomes of a command, it has ended when nothing of it is left.
        self.exited.get_or_insert((Instant::now(), KILLED));
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        if self.ending.is_none_or(|ending| ending.step == Step::Asked) {
            self.kill_because(self.ending.map_or(Cause::Killed, |ending| ending.cause));
        }
    }

    /// Whether its keeper is killing what is left of it.
    pub(crate) fn is_being_killed(&self) -> bool {
        self.ending.is_some_and(|ending| ending.step == Step::Killing)
    }

    /// Its keeper, as long as that has something to keep.
    pub(crate) fn keeper_on_duty(&self) -> Option<&Link> {
        let gone = self.ending.is_some_and(|ending| ending.step == Step::Draining);
        (!gone).then_some(&self.keeper)
    }

    /// Takes the step that is due, and says what is to be done about it. `backed_up`: no output is taken at the moment.
    pub(crate) fn advance(&mut self, now: Instant, backed_up: bool) -> Advice {
        if backed_up || self.stdout.is_starved() || self.stderr.is_starved() {
            self.excuse(now);
        }
        let closed = !self.stdout.is_open() && !self.stderr.is_open();
        let finished = closed && self.exited.is_some();
        let Some(Ending { cause, step, until }) = self.ending else {
            if finished {
                return Advice::Release;
            }
            if let Some((_, cause)) = self.limit().filter(|(at, _)| *at <= now) {
                self.keeper.tell(Order::Ask);
                self.enter(cause, Step::Asked, TERM_GRACE);
            }
            return Advice::Wait;
        };
        match step {
            Step::Asked if finished || until <= now => self.kill_because(cause),
            Step::Killing if until <= now => return Advice::KeeperIsLost,
            Step::Draining if closed || until <= now => return Advice::Forget,
            Step::Asked | Step::Killing | Step::Draining => {}
        }
        Advice::Wait
    }

    /// When [`Job::advance`] has something to do even if nothing happens.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        match self.ending {
            Some(ending) => Some(ending.until),
            None => self.limit().map(|(at, _)| at),
        }
    }

    /// The end of it, as ralph is told.
    pub(crate) fn exit(&self) -> FromGuest<'static> {
        let open = self.stdout.is_open() || self.stderr.is_open();
        let own = self.exited.map_or(KILLED, |(_, status)| status);
        let status = match self.ending.map(|ending| ending.cause) {
            Some(Cause::TimedOut) => Status::TimedOut,
            Some(Cause::Idle) => Status::Idle,
            Some(Cause::Held | Cause::Killed) | None => own,
        };
        let held = open || self.ending.is_some_and(|ending| ending.cause == Cause::Held);
        FromGuest::Exit(status, if held { Hold::Held } else { Hold::Closed })
    }

    /// The limit that is reached first. A command that has ended by itself has only its streams left to wait for.
    fn limit(&self) -> Option<(Instant, Cause)> {
        let at = |from: Instant, limit: Option<Duration>, cause| {
            let at = limit.and_then(|limit| from.checked_add(limit))?;
            Some((at, cause))
        };
        if let Some((exited, _)) = self.exited {
            return at(exited, Some(self.limits.grace), Cause::Held);
        }
        let timeout = at(self.started, self.limits.timeout, Cause::TimedOut);
        let idle = at(self.heard, self.limits.idle, Cause::Idle);
        timeout.into_iter().chain(idle).min_by_key(|(at, _)| *at)
    }

    /// Does not count the time in which its output was not taken.
    fn excuse(&mut self, now: Instant) {
        self.heard = now;
        if let Some((exited, _)) = &mut self.exited {
            *exited = now;
        }
        if let Some(ending) = &mut self.ending
            && ending.step == Step::Draining
        {
            ending.until = now + KILL_GRACE;
        }
    }

    fn kill_because(&mut self, cause: Cause) {
        self.keeper.tell(Order::Kill);
        self.enter(cause, Step::Killing, keeper::PATIENCE * 2);
    }

    fn enter(&mut self, cause: Cause, step: Step, longest: Duration) {
        let until = Instant::now() + longest;
        self.ending = Some(Ending { cause, step, until });
    }
}

/// A keeper, from the guest's side.
#[derive(Debug)]
pub(crate) struct Link {
    stream: UnixStream,
    process: i32,
}

impl Link {
    pub(crate) fn new(stream: UnixStream, process: i32) -> Self {
        Self { stream, process }
    }

    pub(crate) fn process(&self) -> i32 {
        self.process
    }

    /// Tells the keeper what to do, also one that somebody has stopped.
    pub(crate) fn tell(&self, order: Order) {
        // One that is gone is seen by the end of its stream.
        let _ = (&self.stream).write_all(&[order as u8]);
        sys::send(Signal::Continue, self.process);
    }

    /// What it says; `None` when it is gone.
    pub(crate) fn hear(&self) -> Option<Report> {
        Report::read(&self.stream)
    }

    /// Ends a command with its keeper.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)?;
        sys::send(Signal::Continue, self.process);
        Ok(())
    }

    /// Waits until the keeper has left.
    pub(crate) fn outlast(&self) -> io::Result<()> {
        self.stream.set_read_timeout(Some(keeper::PATIENCE * 2))?;
        while self.hear().is_some() {}
        Ok(())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// One output stream of a command.
#[derive(Debug)]
pub(crate) struct Tap {
    pipe: Option<PipeReader>,
    /// How many bytes ralph is ready to take.
    credit: usize,
}

impl Tap {
    fn new(pipe: PipeReader) -> Self {
        Self {
            pipe: Some(pipe),
            credit: WINDOW,
        }
    }

    /// The pipe to watch: none when it has ended, or when nobody takes what comes out of it.
    fn watched(&self) -> Option<&PipeReader> {
        self.pipe.as_ref().filter(|_| self.credit > 0)
    }

    pub(crate) fn grant(&mut self, bytes: u32) {
        self.credit += bytes as usize;
    }

    /// The next piece; an empty one when the stream has ended.
    fn read<'a>(&mut self, chunk: &'a mut [u8]) -> &'a [u8] {
        let room = self.credit.min(chunk.len()).min(CHUNK);
        let read = match &mut self.pipe {
            Some(pipe) => pipe.read(&mut chunk[..room]).unwrap_or(0),
            None => 0,
        };
        if read == 0 {
            self.pipe = None;
        }
        self.credit -= read;
        &chunk[..read]
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    fn is_starved(&self) -> bool {
        self.is_open() && self.credit == 0
    }
}

/// What a command reads.
#[derive(Debug)]
pub(crate) struct Feed {
    pipe: PipeWriter,
    waiting: VecDeque<u8>,
    over: bool,
}

/// Whether a command may read more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    More,
    /// It has read everything, or does not want to.
    Enough,
}

impl Feed {
    pub(crate) fn new(pipe: PipeWriter) -> io::Result<Self> {
        sys::never_wait_for(&pipe)?;
        Ok(Self {
            pipe,
            waiting: VecDeque::new(),
            over: false,
        })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
    }

    pub(crate) fn finish(&mut self) {
        self.over = true;
    }

    /// The pipe to watch: none while there is nothing to write to it.
    pub(crate) fn watched(&self) -> Option<&PipeWriter> {
        (self.over || !self.waiting.is_empty()).then_some(&self.pipe)
    }

    /// Gives as much as the command takes at once; says how many bytes that were.
    pub(crate) fn write(&mut self) -> (usize, Fed) {
        let (front, _) = self.waiting.as_slices();
        let written = match self.pipe.write(front) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return (0, Fed::Enough),
        };
        self.waiting.drain(..written);
        let done = self.over && self.waiting.is_empty();
        (written, if done { Fed::Enough } else { Fed::More })
    }
}
